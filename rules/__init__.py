"""The audit rules: what counts as a finding, with its documentation beside its code."""

if __name__ != "auditor.rules":  # a second copy of every module would be another class for each of its values
    raise ImportError("this directory is the package auditor.rules: import it by that name")
