"""Copies without payload: what ``auditor copy`` leaves, and how it is read as the directory that it was taken from."""
