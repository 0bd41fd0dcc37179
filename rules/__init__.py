"""The audit rules: what counts as a finding, with its documentation beside its code."""
