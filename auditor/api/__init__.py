"""The auditor in Python programs and notebooks: a thin face of the one audit."""
