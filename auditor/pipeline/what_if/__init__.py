"""The same history under other policies."""
