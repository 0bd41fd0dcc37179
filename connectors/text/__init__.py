"""Text dumps from tickets, parsed into the same tables as the binary formats."""
