"""The auditor: from decoded tables through replay and rules to findings."""
