"""Decoded tables: rows of files, and Spark data sources."""
