"""Runs files of conformance cases against the model: ``python -m tests.conformance PATH...``."""
