"""Text dumps that people share in tickets, parsed into the same tables as the binary formats."""
