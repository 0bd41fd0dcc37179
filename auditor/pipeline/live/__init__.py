"""The audit of a running cluster."""
