"""The derived tables, and how tasks write tables as Parquet."""
