"""Connectors: from bytes, in files or elsewhere, to rows. They judge nothing."""

if __name__ != "auditor.connectors":  # a second copy of every module would be another class for each of its values
    raise ImportError("this folder is the package auditor.connectors: import it by that name")
