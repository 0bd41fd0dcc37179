"""Decoded tables: schemas, rows, and Spark data sources."""
