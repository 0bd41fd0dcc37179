"""The auditor in Python programs and notebooks."""
