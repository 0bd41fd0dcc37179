"""One replica read from its first segment to its last: a directory's, a text dump's, a running cluster's."""
