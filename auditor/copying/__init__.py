"""``auditor copy``: copies of log directories without record payloads."""
