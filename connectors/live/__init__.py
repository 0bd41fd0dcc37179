"""A running cluster through kafka-python."""
