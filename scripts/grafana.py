"""The Grafana dashboard over metrics.prom, made with Grafana's own builders: ``dashboards/grafana/dashboard.json``.

    python scripts/grafana.py > dashboards/grafana/dashboard.json

Needs the group ``dev``: who uses the dashboard needs only the JSON.
"""

from __future__ import annotations

import sys
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as plain
from grafana_foundation_sdk.models import dashboard as models

DAY = 86_400
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
OF = 'instance=~"$instance",cluster=~"$cluster"'
COLOURS = {"critical": "dark-red", "error": "orange", "warning": "yellow", "info": "blue"}


def query(expr: str, legend: str = "__auto", latest: bool = False, rows: bool = False) -> prometheus.Dataquery:
    """A query of the series of the chosen instances and clusters, which ``OF`` in ``expr`` stands for."""
    made = prometheus.Dataquery().expr(expr.replace("{OF", "{" + OF)).legend_format(legend).ref_id("A")
    made = made.datasource(SOURCE)
    if latest:
        made = made.instant()
    return made.format("table") if rows else made  # type: ignore[arg-type]


def place(x: int, y: int, w: int, h: int) -> models.GridPos:
    """Where a panel lies on the grid of 24 columns."""
    return models.GridPos(x=x, y=y, w=w, h=h)


def number(
    title: str,
    says: str,
    expr: str,
    at: models.GridPos,
    steps: dict[float, str],
    unit: str = "short",
    calm: str = "text",
) -> stat.Panel:
    """One number on a ground that has the colour ``calm`` below the first of ``steps``."""
    colours = [models.Threshold(value=None, color=calm)]
    colours += [models.Threshold(value=value, color=color) for value, color in steps.items()]
    thresholds = dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(colours)
    return (
        stat.Panel().title(title).description(says).datasource(SOURCE).grid_pos(at)
        .with_target(query(expr, latest=True)).unit(unit).no_value("no audit").thresholds(thresholds)
        .color_mode(plain.BigValueColorMode.BACKGROUND).graph_mode(plain.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )  # fmt: skip


def curve(title: str, says: str, expr: str, legend: str, at: models.GridPos, unit: str = "short") -> timeseries.Panel:
    """A curve in steps: each is a run."""
    return (
        timeseries.Panel().title(title).description(says).datasource(SOURCE).grid_pos(at)
        .with_target(query(expr, legend)).unit(unit).min(0).fill_opacity(25)
        .line_interpolation(plain.LineInterpolation.STEP_AFTER).show_points(plain.VisibilityMode.NEVER)
        .stacking(common.StackingConfig().mode(plain.StackingMode.NORMAL).group("A"))
        .tooltip(common.VizTooltipOptions().mode(plain.TooltipDisplayMode.MULTI).sort(plain.SortOrder.DESCENDING))
    )  # fmt: skip


def rows(title: str, says: str, expr: str, at: models.GridPos, value: str | None, unit: str = "short") -> table.Panel:
    """A table of the latest values, highest first; ``value``: what their column is called, None to leave it out."""
    options: dict[str, Any] = {"excludeByName": {"Time": True} | ({"Value": True} if value is None else {})}
    made = table.Panel().title(title).description(says).datasource(SOURCE).grid_pos(at)
    made = made.with_target(query(expr, latest=True, rows=True))
    if value is not None:
        options["renameByName"] = {"Value": value}
        made = made.sort_by([common.TableSortByFieldState().display_name(value).desc(True)])
        made = made.override_by_name(value, [models.DynamicConfigValue(id_val="unit", value=unit)])
    return made.with_transformation(models.DataTransformerConfig(id_val="organize", options=options))


def chooser(name: str, label: str, asked: str) -> dashboard.QueryVariable:
    """A variable of many values, all of them at first."""
    return (
        dashboard.QueryVariable(name).label(label).datasource(SOURCE).query(f"label_values({asked}, {name})")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True).include_all(True).all_value(".*")
        .current(models.VariableOption(text="All", value="$__all"))
    )  # fmt: skip


def coloured(panel: timeseries.Panel) -> timeseries.Panel:
    """The severities in the colours of the report."""
    for name, colour in COLOURS.items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        panel = panel.override_by_name(name, [models.DynamicConfigValue(id_val="color", value=fixed)])
    return panel


def panels() -> list[Any]:
    """The panels from top to bottom."""
    red: dict[float, str] = {1: "red"}
    blocked = 'standing=~"stuck|overdue|undeliverable"'
    open_findings = 'sum(kafka_audit_findings_by_severity{OF,severity=~"critical|error"})'
    incomplete = "sum(1 - kafka_audit_complete{OF})"
    return [
        number("Open findings", "Critical and error findings. Green only if none is open and no audit is incomplete.",
               f"{open_findings} > 0 or ({open_findings} unless on() {incomplete} > 0)", place(0, 0, 4, 5), red,
               calm="green"),
        number("Critical findings", "Data is lost, or consumers are blocked.",
               'sum(kafka_audit_findings_by_severity{OF,severity="critical"})', place(4, 0, 3, 5), red),
        number("Error findings", "Exactly-once is broken, or will be.",
               'sum(kafka_audit_findings_by_severity{OF,severity="error"})', place(7, 0, 3, 5), {1: "orange"}),
        number("Suppressed findings", "The baseline suppresses them. No other number includes them.",
               "sum(kafka_audit_accepted_findings{OF})", place(10, 0, 3, 5), {}),
        number("Blocked partitions", "Their read_committed consumers are blocked. report.html shows the transactions.",
               f"sum(kafka_audit_blocked_partitions{{OF,{blocked}}})", place(13, 0, 3, 5), red),
        number("Unreadable bytes", "Bytes that were not checked.",
               'sum(kafka_audit_bytes{OF,state="unreadable"})', place(16, 0, 2, 5), {1: "orange"}, "bytes"),
        number("Incomplete audits", "Part of the input is unreadable, or there was no input to check.",
               incomplete, place(18, 0, 2, 5), {1: "orange"}),
        number("Since the last run", "For the cluster with the oldest last audit.",
               "max(time() - kafka_audit_run_timestamp_seconds{OF})", place(20, 0, 4, 5),
               {1.1 * DAY: "yellow", 1.5 * DAY: "orange"}, "s"),
        rows("Blocked partitions by age", "Duration and partition; the worst have a row each.",
             "max by (cluster, broker, topic, partition, standing) (kafka_audit_holder_age_seconds{OF})",
             place(0, 5, 12, 9), "open for", "s"),
        curve("LSO lag", "By topic: offsets that read_committed consumers cannot read yet.",
              "sum by (cluster, topic) (kafka_audit_lso_lag_offsets{OF})", "{{cluster}} {{topic}}",
              place(12, 5, 12, 9)),
        coloured(curve("Findings by severity", "Each step is a run of the audit.",
                       "sum by (severity) (kafka_audit_findings_by_severity{OF})", "{{severity}}",
                       place(0, 14, 12, 9))),
        curve("Open transactions by class", "Class active: within timeout.",
              "sum by (class) (kafka_audit_open_transactions{OF})", "{{class}}", place(12, 14, 12, 9)),
        rows("Findings by rule", "Latest run. 'auditor rules ID' explains a rule and what to do.",
             "sum by (rule, kind, severity) (kafka_audit_findings{OF}) > 0", place(0, 23, 12, 10), "findings"),
        rows("Clusters", "Version, policy and duration of the latest run of each cluster.",
             "max by (cluster, instance) (kafka_audit_run_duration_seconds{OF})"
             " * on (cluster, instance) group_left (version, policy) kafka_audit_info{OF}",
             place(12, 23, 12, 5), "took", "s"),
        curve("Bytes audited", "Decoded, skipped, unreadable.",
              "sum by (state) (kafka_audit_bytes{OF})", "{{state}}", place(12, 28, 12, 5), "bytes"),
    ]  # fmt: skip


def text() -> str:
    """The dashboard as JSON, the same for the same version of the builders."""
    made = (
        dashboard.Dashboard("Kafka log audit").uid("kafka-log-audit").tags(["kafka"]).timezone("utc").editable()
        .description("Findings of the latest audits of Kafka log directories, from metrics.prom.")
        .refresh("5m").time("now-30d", "now").tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(chooser("instance", "Instance", "kafka_audit_info"))
        .with_variable(chooser("cluster", "Cluster", "kafka_audit_info"))
    )  # fmt: skip
    for at, panel in enumerate(panels(), 1):
        made = made.with_panel(panel.id(at))
    return str(JSONEncoder(sort_keys=True, indent=1).encode(made.build())) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
