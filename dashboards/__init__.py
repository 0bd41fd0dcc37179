"""How findings look: the report, the metrics file, the dashboards."""

if __name__ != "auditor.dashboards":  # a second copy of every module would be another class for each of its values
    raise ImportError("this directory is the package auditor.dashboards: import it by that name")
