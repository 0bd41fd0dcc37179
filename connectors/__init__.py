"""Connectors: from bytes, wherever they are, to rows. They judge nothing."""
