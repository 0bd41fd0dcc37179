"""The version, in the one place that says it: packaging and programs read it here, zips have no other."""

VERSION = "0.1.0"
