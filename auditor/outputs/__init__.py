"""Everything an audit leaves behind: files, kept runs, alerts, printed results."""
