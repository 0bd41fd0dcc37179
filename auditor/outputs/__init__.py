"""All that an audit leaves behind: files, kept runs, alerts, expectations."""
