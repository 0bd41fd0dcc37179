"""The records of internal topics while a replica is read, reduced as they pass."""
