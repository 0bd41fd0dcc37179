"""The results of an audit: findings, summary, report, metrics, tables (contract section 3)."""

from __future__ import annotations

import datetime
import importlib.metadata
import itertools
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.base import VERSION, at_rest
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import RECORD_AT, VENDOR
from auditor.base.evidence_keys import Evidence, read
from auditor.base.user_input import ClusterName
from auditor.base.words import few, plural
from auditor.connectors import schema
from auditor.connectors.stores import results
from auditor.dashboards import answers
from auditor.dashboards.answers import RunReport
from auditor.dashboards.metrics import write_metrics
from auditor.dashboards.report import render_report
from auditor.dashboards.table_lines import IMPACT_SHOWN, impact_counts
from auditor.facts.coordinator_history import CoordinatorHistory
from auditor.outputs import lake, runs
from auditor.outputs.delivery import SUMMARY, WHAT_IF
from auditor.outputs.runs import LOG, Shelf
from auditor.pipeline import cluster_context, rehearsal_table
from auditor.pipeline import summary as pipeline_summary
from auditor.pipeline.impact_table import without_rows
from auditor.pipeline.runner import LogTotals
from auditor.pipeline.what_if_audit import WhatIfAudit
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry, safeguards
from auditor.rules.lib import repairs
from auditor.rules.seen.view import SEVERITIES, Finding, iso
from auditor.rules.validation import COUNTED_BY_RECORDS, METRICS

if TYPE_CHECKING:
    from auditor.pipeline.table_tasks import WrittenTables


NO_RECORDS = (
    "{} is a copy without record checks of {}: the checks of --records are inconclusive there "
    "(use auditor copy --records)"
)


NO_PAGE = "<!doctype html><title>No report</title><p>The page could not be created: see unreadable in summary.json.\n"


def publish(audit: Audit, folder: Path) -> RunReport:
    """Write all results into a directory, and into the history if one is asked for. Returns them as they are shown.

    Errors: ``OSError``; :class:`AuditInputError` if the history cannot be written.
    """
    options = audit.options
    _ = audit.findings
    written = audit.look("tables/", lambda: write_tables(audit, folder), None) if options.tables else None
    if written is None:
        shutil.rmtree(folder / "tables", ignore_errors=True)  # what looks whole and is not
    kept = {} if options.history is None else audit.look("totals", partial(pipeline_summary.totals, audit), {})
    summary, judged, unseen = _summarise(audit), None, dict[str, str]()
    if options.expectations:
        judged, summary["expectations"] = judge(audit, summary, folder, written)
    if options.history is not None:
        unreadable = "the runs before are unreadable", unseen
        summary["unchecked"], unseen = audit.look("the runs before", lambda: _unchecked(audit), unreadable)
    report = _with_verdict(audit, summary)
    if not (page := audit.look("report.html", lambda: report_page(audit, report), "")):
        again = {name: summary[name] for name in ("expectations", "unchecked") if name in summary}
        report = _with_verdict(audit, _summarise(audit) | again)
    write_findings(audit, folder)
    results.folder(folder).put_text("report.html", page or NO_PAGE)
    write_metrics(folder / "metrics.prom", report)
    if options.history is not None:
        keep(audit, report, kept if judged is None else kept | {"expectations": judged}, unseen)
        if options.history_format == "delta":
            lake.write(options.history)
    results.folder(folder).put_text(SUMMARY, at_rest.pieces(report.summary))
    return report


def write_tables(audit: Audit, folder: Path) -> WrittenTables:
    """Write ``tables/``. If tasks run on other hosts and ``--out`` is a store, they write the parts there
    themselves."""
    from auditor.outputs import delivery
    from auditor.pipeline import table_parts

    out = audit.options.out
    staging = delivery.staging(out) if isinstance(out, str) and audit.runner.elsewhere else None
    written = table_parts.write(audit, audit.written_tables(), folder / "tables", staging)
    if staging is not None:
        delivery.keep_names(written, folder)
    return written


def run_report(audit: Audit) -> RunReport:
    """An audit's results as every surface shows them, and as ``summary.json`` has them: described once."""
    return _with_verdict(audit, _summarise(audit))


def _with_verdict(audit: Audit, summary: Fields) -> RunReport:
    """``summary``: of :func:`_summarise`. Each finding has what its kind declares and, under ``accepted``, the entry of
    the baseline that accepts it (null: none)."""
    described = registry.described(
        f.to_dict() | {"accepted": None if entry is None else entry.row()}
        for f, entry in zip(audit.findings, audit.accepted.accepted, strict=True)
    )
    report = answers.report_of(described, summary)
    summary["verdict"] = verdict_row(audit, report.verdict)
    report.full["verdict"] = summary["verdict"]
    return report


def report_page(audit: Audit, report: RunReport) -> str:
    """What ``report.html`` is."""
    judged, totals = audit.judged, audit.logs.totals
    return render_report(report, judged["open"], judged["timeline"], (totals.chained, totals.counted))


def publish_what_if(audit: WhatIfAudit, folder: Path) -> None:
    """Write the results of a what-if into a directory."""
    write_findings(audit, folder)
    written(audit.held("verdicts"), folder / "tables" / "verdicts")
    results.folder(folder).put_text(WHAT_IF, at_rest.pieces(audit.result))


def write_findings(audit: Audit, folder: Path) -> None:
    """Write ``findings.jsonl``, and the table ``findings`` as Parquet."""
    results.folder(folder).put_text("findings.jsonl", (f.to_json() + "\n" for f in audit.findings))
    written(pipeline_summary.findings_table(audit), folder / "findings")


def keep(audit: Audit, report: RunReport, more: Values, unseen: dict[str, str] | None = None) -> None:
    """Add the results to the history. ``more``: tables beside those of the results; ``unseen``: of
    :func:`auditor.outputs.runs.unchecked`."""
    options, summary = audit.options, report.summary
    assert options.history is not None
    run_id = options.run_id or runs.new_run_id()
    tables = {
        "findings": pipeline_summary.findings(audit),
        "logs": pipeline_summary.logs(audit),
        "report": pipeline_summary.report(audit),
        "blocked": pipeline_summary.blocked_table(audit),
        **more,
    }
    if summary["baseline"] is not None:
        tables["baseline"] = pipeline_summary.baseline(audit.accepted)
    facts = facts_of(audit, tables["logs"]) | {
        "as_of": summary["as_of"],
        "counts": summary["counts"]["by_severity"],
        "accepted": None if summary["baseline"] is None else summary["baseline"]["counts"]["by_severity"],
        "batches": summary["batches"],
        "bytes": summary["bytes"]["total"],
        "named": {row["cluster_id"]: {k: row[k] for k in ClusterName._fields} for row in summary["clusters"]},
        "bytes_unreadable": summary["bytes"]["unreadable"],
        "records": summary["records"],
        "tool_version": VERSION,
        "verdict": {name: summary["verdict"][name] for name in ("tone", "headline")}
        | {"outcome": next(iter(report.verdict.outcomes), None)},
        "held": _held(report.verdict),
        "lacking": report.verdict.lacking,
        "unseen": unseen,
    }
    runs.publish(options.history, run_id, tables, facts, summary)


def facts_of(audit: Audit, logs: pa.Table) -> Fields:
    """Return what says which findings of other runs this one looked for."""
    return {
        "complete": not audit.incomplete(),
        "clusters": audit.cluster_ids,
        "asked": audit.options.asked,
        "brokers": brokers_of((d.cluster_id, d.broker_id) for d in audit.inventory.log_dirs),
        "all_logs": has_all_logs(audit, logs),
    }


def _unchecked(audit: Audit) -> tuple[str, dict[str, str]]:
    options, tables = (
        audit.options,
        {"findings": pipeline_summary.findings(audit), "logs": pipeline_summary.logs(audit)},
    )
    shelf = Shelf(options.history or "")

    def why() -> tuple[str, dict[str, str]]:
        committed = list(itertools.takewhile(lambda past: past.run_id != options.run_id, shelf.runs()))
        return runs.unchecked(shelf, committed, shelf.with_run(facts_of(audit, tables["logs"]), tables))

    return shelf.without_unreadable(why) if results.folder(shelf.history).exists() else ("", {})


def brokers_of(log_dirs: Iterable[tuple[str | None, int | None]]) -> dict[str, int]:
    """Return the number of log directories by broker; ``log_dirs``: the cluster and broker id of each."""
    owners = list(log_dirs)
    several = len({cluster for cluster, _ in owners}) > 1
    names = (
        ("a broker without an id" if broker is None else f"broker {broker}")
        + (f" of {cluster or 'no cluster'}" if several else "")
        for cluster, broker in owners
    )
    return dict(Counter(names))


def has_all_logs(audit: Audit, logs: pa.Table) -> bool:
    """Whether every partition in the metadata that was asked for is among the logs; a partition of an earlier run
    that is missing then was deleted."""
    present = set(zip(*(logs[name].to_pylist() for name in LOG), strict=True))
    return all(
        settings.whole
        and settings.metadata is not None
        and settings.source is not None
        and all(
            (settings.source.cluster_id, p.topic, p.partition) in present
            for p in settings.metadata.partitions.values()
            if audit.options.scope.wants_log(p.topic, p.partition)
        )
        for settings in audit.settings.values()
    )


def _held(decided: answers.RunVerdict) -> Fields:
    since = min((row.holder.row["since"] for row in decided.held if row.holder.row["since"]), default=None)
    lost = {(finding["topic"], finding["partition"]) for finding in decided.lost}
    return {"blocked": len(decided.held), "since": since, "lost": len(lost)}


def _summarise(audit: Audit) -> Fields:
    """``summary.json``: counts, inputs, every input byte, what was not read, policy and why, and each log.

    Without the verdict, which :func:`_with_verdict` draws from it.
    """
    totals = audit.logs.totals
    looks: Fields = {  # the first, for what fails is part of what the others say
        "cluster_events": audit.cluster_events,
        "asides": audit.look("the list of asides", lambda: _asides(audit), []),
        "impact": audit.look("the list of impacted records", lambda: _impact(audit), None),
        "rehearsal": audit.look("the rehearsal of stops", lambda: rehearsal_table.counts_of(audit.states), None),
        "prevention": audit.look("the list of preventions", lambda: _prevention(audit), []),
        "recovery": audit.recovery,
    }
    for _ in audit.blocked:  # as well
        pass
    return {
        "tool": {"name": "auditor", "version": VERSION},
        "versions": {name: version(name) for name in ("pyspark", "pyarrow", "numpy", "numba")}
        | {"python": sys.version.split()[0]},
        "as_of": audit.as_of_text,
        "as_of_given": audit.options.as_of is not None,
        "newest": iso(max((c.newest_time for c in audit.clusters.values()), default=-1)),
        "complete": not audit.incomplete(),
        "verdict": None,
        "empty_input": None if audit.empty_input is None else audit.empty_input.reason,
        "coverage": [row._asdict() for row in audit.coverage],
        "scope": scope(audit),
        "policy": [c._asdict() for c in audit.choices],
        "counts": counts(audit.open_findings),
        "baseline": _baseline(audit),
        "clusters": [{"cluster_id": id, **named.row()} for id, named in pipeline_summary.cluster_names(audit).items()],
        "inputs": _inputs(audit),
        "bytes": _bytes(audit, totals),
        "batches": totals.batches,
        "records": totals.records,
        "records_decoded": audit.options.records and _looked(totals),
        "validation_failures": _validation_failures(audit, totals),
        "skipped": _skipped(audit, totals),
        "unreadable": [{"log_dir": log_dir, **error._asdict()} for log_dir, error in audit.unread()],
        "notes": [*audit.inventory.notes, *_notes(audit, totals)],
        "logs": audit.logs.of_summary,
        "blocked": audit.blocked,
        **{name: looks[name] for name in ("cluster_events", "asides", "impact", "rehearsal", "prevention")},
        "open_transactions": dict(sorted(totals.open.items())),
        "recovery": looks["recovery"],
        "timings": audit.timings,
        "ran": _ran(audit),
        **audit.of_summary(),
    }


def _asides(audit: Audit) -> list[Fields]:
    partitions = {(row["topic"], row["partition"]) for row in audit.blocked if row["log_dir"] and row["readers"]}
    return [*audit.judged["aside"], *pipeline_summary.lag_in_partitions(audit, partitions)]


def _impact(audit: Audit) -> Fields:
    """Return the ranges of open findings whose records are lost, hidden, exposed or duplicated, and their sums."""
    unsuppressed = {f.fingerprint for f in audit.open_findings}
    rows = [row for row in audit.impact if row["finding"] in unsuppressed]
    shown = [row | {name: iso(row.get(name)) for name in ("first_at", "last_at")} for row in rows[:IMPACT_SHOWN]]
    counts = {"left_out": len(rows) - len(shown), "unlisted": len(without_rows(audit.open_findings, rows))}
    return {"outcomes": impact_counts(rows), "rows": shown, **counts}


def verdict_row(audit: Audit, decided: answers.RunVerdict) -> Fields:
    """The answer in short: the tone (bad, warn, unsure, good), the headline of page and terminal, the exit code and the
    severity that it goes by; how many critical and error findings have which outcome, and how many of each severity a
    baseline suppresses."""
    return {
        "tone": decided.tone,
        "headline": decided.headline,
        "exit": audit.exit_code(),
        "fail_on": audit.options.fail_on,
        "outcomes": dict(decided.outcomes),
        "suppressed": dict(decided.suppressed),
    }


def scope(audit: Audit) -> Fields:
    """Return the scope if it is not everything: rules, what was scanned, what was excluded for it, and the number of
    replicas of the input's brokers that are missing."""
    options = audit.options
    possible = (k for k in registry.kinds().values() if not k.what_if and (options.records or not k.records))
    left_out = {kind.rule for kind in possible if kind.id not in audit.kinds}  # those of which a part was, too
    return {
        "rules": len({registry.kinds()[kind].rule for kind in audit.kinds} - left_out),
        "rules_left_out": len(left_out),
        "topics": list(options.topics),
        "partitions": list(options.only_partitions),
        "brokers": list(options.only_brokers),
        "whole": options.whole,
        "since": None if options.since is None else options.since.described,
        "left_out": audit.left_out._asdict(),
        "not_in_input": sum(n for _, n, _ in cluster_context.counts(audit.inventory, audit.settings, options)),
        "absent_brokers": _absent_brokers(audit),
        "without_records": audit.logs.totals.unlooked.total(),
    }


def _absent_brokers(audit: Audit) -> list[int]:
    # Without any log directory in the input, though the metadata assigns them partitions that were asked for.
    wants = audit.options.scope.wants
    assigned = {
        (join_key, broker)
        for join_key, cluster in audit.settings.items()
        if cluster.metadata is not None and cluster.whole
        for p in cluster.metadata.partitions.values()
        for broker in p.replicas
        if wants(p.topic, p.partition, broker)
    }
    return sorted({broker for _, broker in assigned - {(d.join_key, d.broker_id) for d in audit.inventory.log_dirs}})


def _validation_failures(audit: Audit, totals: LogTotals) -> dict[str, int | None]:
    # By KIP-467's counters, each log once. None if only records that were not decoded could show any.
    looked = audit.options.records and not totals.unlooked.total()
    return {
        metric: None if name in COUNTED_BY_RECORDS and not looked else totals.refused[name]
        for name, metric in METRICS.items()
    }


def _looked(totals: LogTotals) -> bool:
    return totals.unlooked.total() < totals.with_records or not totals.with_records


def counts(findings: Iterable[Finding]) -> dict[str, dict[str, int]]:
    """Return the number of findings by severity (with zeros), by rule, and by kind."""
    listed = list(findings)
    severities, rules = Counter(f.severity for f in listed), Counter(f.rule for f in listed)
    kinds = Counter(f.kind for f in listed)
    return {
        "by_severity": {s: severities[s] for s in SEVERITIES},
        "by_rule": dict(sorted(rules.items())),
        "by_kind": dict(sorted(kinds.items())),
    }


def _baseline(audit: Audit) -> Fields | None:
    if audit.options.baseline is None:
        return None
    resolution = audit.accepted
    accepted = [f for f, entry in zip(audit.findings, resolution.accepted, strict=True) if entry is not None]
    return {
        "file": audit.baseline.file,
        "entries": len(audit.baseline.entries),
        "counts": counts(accepted),
        "accepted": sorted({entry.fingerprint for entry in resolution.accepted if entry is not None}),
        "back": [entry.row() | {"why": why} for entry, why in resolution.back],
        "gone": [entry.row() for entry in resolution.gone],
    }


def _prevention(audit: Audit) -> list[Fields]:
    # Only findings above info that the baseline does not suppress.
    of_dir, kinds = {d.name: d.join_key for d in audit.inventory.log_dirs}, registry.kinds()
    clusters, bootstrap = audit.clusters, audit.options.bootstrap
    prevented = (
        (f, safeguards.prevented_by(f, kinds[f.kind].prevented_by, clusters[key]))
        for f in audit.open_findings
        if f.severity != "info" and (key := of_dir.get(read(Evidence, f.evidence).get("log_dir") or "")) in clusters
    )
    rows = safeguards.summed(prevented)
    return [row | {"commands": [repairs.addressed_to(c, bootstrap) for c in row["commands"]]} for row in rows]


def _ran(audit: Audit) -> Fields:
    duration = datetime.datetime.now(datetime.UTC) - audit.began
    return {"began": iso(int(audit.began.timestamp() * 1000)), "seconds": round(duration.total_seconds(), 3)}


def version(package: str) -> str:
    """Return the installed version of a package, "unknown" if it runs from a directory or a zip."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _inputs(audit: Audit) -> list[Fields]:
    return [
        {
            "log_dir": d.name,
            "cluster_id": d.cluster_id,
            "broker_id": d.broker_id,
            "broker_id_from": d.broker_id_source,
            "clean_shutdown": d.clean_shutdown,
            "copies": len(d.replicas),
            "files": d.file_count,
            "bytes": d.size,
        }
        for d in audit.inventory.log_dirs
    ]


def _bytes(audit: Audit, totals: LogTotals) -> dict[str, int]:
    # Every byte counts once: decoded, skipped with a reason, or unreadable.
    total = totals.bytes.copy()
    for (_log_dir, file, _position), (size, of_vendor) in _metadata_not_understood(audit, totals).items():
        total["skipped" if file.endswith(".checkpoint") else "decoded"] -= size  # as which they were booked
        total["skipped" if of_vendor else "error"] += size
    small = sum(f.size for d in audit.inventory.log_dirs for f in d.small_files)
    small += sum(s.size for s in audit.inventory.settings)
    skipped = sum(s.size for s in audit.inventory.skipped)
    unread, newer = audit.inventory.unread_bytes, _newer_small_files(audit)
    return {
        "total": total["total"] + small + skipped + unread,
        "decoded": total["decoded"] + small - newer,
        "skipped": total["skipped"] + skipped,
        "unreadable": total["error"] + unread + newer,
    }


def _newer_small_files(audit: Audit) -> int:
    # Small files of an unknown version are unreadable.
    newer = {(u.log_dir, u.error.file) for u in audit.inventory.errors if u.error.reason == "bad_version"}
    return sum(f.size for d in audit.inventory.log_dirs for f in d.small_files if (d.name, f.name) in newer)


def _metadata_not_understood(audit: Audit, totals: LogTotals) -> dict[tuple[str, str, int], tuple[int, bool]]:
    # Batches with records that were not understood, by place: bytes, and whether all of them are a vendor's.
    batches: dict[tuple[str, str, int], tuple[int, bool]] = {}
    for log_dir, error in audit.outside:
        if error.detail.startswith(RECORD_AT) and log_dir in totals.with_metadata:
            place = log_dir, error.file, error.position
            batches[place] = error.length, error.reason == VENDOR and batches.get(place, (0, True))[1]
    return batches


def _skipped(audit: Audit, totals: LogTotals) -> list[Fields]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for item in audit.inventory.skipped:
        groups[item.reason].append(item)
    out = [
        {
            "reason": reason,
            "files": len(items),
            "bytes": sum(i.size for i in items),
            "example": "/".join(filter(None, (items[0].log_dir, items[0].file))),
        }
        for reason, items in sorted(groups.items())
    ]
    if totals.padded_first is not None:
        out.append(
            {
                "reason": "preallocated (empty) index space; __cluster_metadata (decoded separately)",
                "files": totals.padded,
                "bytes": totals.bytes["skipped"],
                "example": totals.padded_first[1],
            }
        )
    of_vendors = {
        place: size
        for place, (size, of_vendor) in _metadata_not_understood(audit, totals).items()
        if of_vendor and not place[1].endswith(".checkpoint")
    }
    if of_vendors:
        files = [f"{log_dir}/{file}" for log_dir, file, _ in of_vendors]
        out.append(
            {
                "reason": "batches of __cluster_metadata with vendor records",
                "files": len(set(files)),
                "bytes": sum(of_vendors.values()),
                "example": files[0],
            }
        )
    return out


def _not_whole(history: CoordinatorHistory) -> str:
    if missing := few(p for p in range(history.partition_count) if p not in history.complete_from):
        return f"__transaction_state is incomplete in the input; missing or unreadable partitions: {missing}"
    if not history.count_known:
        return "the partition count of __transaction_state is unknown: partitions may be missing"
    return f"unreadable records of __transaction_state; partitions: {few(sorted(history.broken))}"


def _notes(audit: Audit, totals: LogTotals) -> list[str]:
    lacking = cluster_context.counts(audit.inventory, audit.settings, audit.options)
    notes = [*totals.notes, *audit.runner.work_notes]
    notes += [
        f"{row.kind} is {row.state}: {row.first}" + (f" and {row.files - 1:,} more" if row.files > 1 else "")
        for row in audit.coverage
    ]
    if of_vendors := {error.detail.partition(": ")[2] for _, error in audit.outside if error.reason == VENDOR}:
        notes.append(f"vendor records of __cluster_metadata skipped: {few(sorted(of_vendors))}")
    notes += [
        f"{n} of {plural(m, 'partition')} of broker {broker} are missing from the input" for broker, n, m in lacking
    ]
    notes += [NO_RECORDS.format(log_dir, plural(n, "batch")) for log_dir, n in totals.unlooked.items() if n]
    for cluster in audit.clusters.values():
        notes += [
            f"{old.log_dir} is excluded: {old.by} is a newer copy of the same log directory ({old.why}); only logs "
            "missing from the newer copy are checked"
            for old in cluster.copies.superseded.values()
        ]
        if unordered := sorted(f"{topic}-{number}" for topic, number in cluster.copies.unordered):
            notes.append(f"inconclusive, because the newer copy of a directory is unknown: {few(unordered)}")
        notes += [f"wrong clock in {log_dir}: {why}; its times are ignored" for log_dir, why in cluster.misread.items()]
        if cluster.coordinator is None:
            notes.append("no __transaction_state in the input: open transactions are evaluated by age only")
        elif not cluster.coordinator.covered():
            notes.append(_not_whole(cluster.coordinator))
    return sorted(set(notes))


# ``auditor audit --expectations``: the suites of :mod:`auditor.rules.expectations`.


SHOWN = ("severity", "suite", "says", "rows", "broken", "where", "error")


def judge(audit: Audit, summary: Values, folder: Path, tables_written: WrittenTables | None) -> tuple[pa.Table, Fields]:
    """Run the expectations and write ``tables/expectations``; return the results and their part of the summary.

    Decoded and derived tables are checked if ``--tables`` wrote them; findings, logs and the run always. Dumps print
    less than files hold: with one in the input, tables are not compared with each other.
    """
    from auditor.rules.expectations import suites

    logs = pipeline_summary.logs(audit)
    held = {
        "findings": pipeline_summary.findings_table(audit),
        "logs": logs,
        "run": pa.Table.from_pylist([_run(audit, summary)], schema=suites.RUN),
    }
    for name in ("logs", "run"):
        written(held[name], folder / "tables" / name)
    has_dumps = any(log_dir.texts for log_dir in audit.inventory.log_dirs)
    views = (lambda dialect, _: suites.views(dialect, ())) if has_dumps else suites.views
    frames = audit.runner.frames(tables_written, held | {"logs_before": _logs_before(audit)}, views)
    rows = list(suites.run((name, own) for name, own in frames if name != "logs_before"))
    table = pa.Table.from_pylist(rows, schema=schema.EXPECTATIONS)
    written(table, folder / "tables" / "expectations")
    failed = [row for row in rows if not row["success"]]
    return table, {
        "evaluated": len(rows),
        "failed": len(failed),
        "by_severity": dict(sorted(Counter(row["severity"] for row in failed).items())),
        "failing": [{name: row[name] for name in SHOWN} for row in failed],
        "passing": [f"{row['suite']}: {row['says']}" for row in rows if row["success"]],
    }


def _logs_before(audit: Audit) -> pa.Table:
    """Return the logs of the run before; none where that is unknown."""
    options, before = audit.options, None
    if options.history is not None:
        before = runs.before(options.history, options.run_id, audit.cluster_ids, options.asked)
    if before is None or options.history is None:
        return schema.LOGS.empty_table()
    try:
        return runs.read(options.history, before, "logs", schema.LOGS.names)
    except runs.UnreadableRun:
        return schema.LOGS.empty_table()


def _run(audit: Audit, summary: Values) -> Fields:
    """Return the run as one row: age of the input in ms, number of logs, share of the bytes accounted for."""
    size = summary["bytes"]
    ages = [cluster.as_of - cluster.newest_time for cluster in audit.clusters.values() if cluster.newest_time >= 0]
    counted = size["decoded"] + size["skipped"] + size["unreadable"]
    return {
        "age_ms": min(ages, default=None),
        "logs": len(summary["logs"]),
        "bytes_unreadable": size["unreadable"],
        "covered": counted / size["total"] if size["total"] else 1.0,
    }


def written(table: pa.Table, folder: Path) -> None:
    """Write a table into a directory of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "part-0.parquet")
