"""Log directories and copies of them: what exists, whose it is, and what of it is read."""
