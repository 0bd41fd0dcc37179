"""Connectors: from bytes, in files or elsewhere, to rows. They judge nothing."""

if __name__ != "auditor.connectors":  # imported twice, its classes would differ
    raise ImportError("this directory is the package auditor.connectors: import it by that name")
