"""``auditor copy``: what a log directory tells, without payload."""
