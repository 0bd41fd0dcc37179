"""How findings look: the report, the metrics file, the dashboards."""
