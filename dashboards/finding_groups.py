"""Findings by cause, their selection, and single findings as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from auditor.base.at_rest import Values
from auditor.base.evidence_keys import Evidence, PartitionsEvidence, read
from auditor.base.user_input import fits, is_of
from auditor.dashboards.answers import BlockedSummary, Open, badness, unaccepted
from auditor.dashboards.wording import (
    GRAVE,
    SEVERITIES,
    Finding,
    clip,
    in_words,
    kind,
    log_name,
    offsets,
    short_fingerprint,
    value,
    visible,
    who,
)

if TYPE_CHECKING:
    from markupsafe import Markup

# Causes: findings of one kind and owner (producer, transactional id or group), and blocked partitions of one producer.
# Terminal and report use the same: a thousand partitions blocked by four producers are four causes.


OWNERS = 8
_NAMES = ("transactional_id", "producer_id", "producer_epoch", "group_id")


@dataclass(frozen=True, slots=True)
class Cause:
    """Findings of one kind and severity with one owner, or with too many owners to list.

    ``who``: the owner in words, empty if unknown; ``owners``: how many; ``findings``: in the order given.
    """

    rule: str
    kind: str
    severity: str
    who: str
    owners: int
    findings: Sequence[Finding]


def causes(findings: Sequence[Finding], most: int = OWNERS) -> list[Cause]:
    """Group findings by cause, the highest severity first, else in the order given.

    Findings of a kind are grouped by owner if it has at most ``most`` owners. With more, owners of at least one in
    ``most`` findings get a group each, all others one. Infos are grouped by kind alone unless they have one owner.
    Cost: linear.
    """
    by_kind: dict[tuple[str, str, str], dict[tuple[object, ...], list[Finding]]] = {}
    for finding in findings:
        owners = by_kind.setdefault((finding["severity"], finding["rule"], kind(finding)), {})
        owners.setdefault(_owner(finding), []).append(finding)
    result: list[Cause] = []
    for (severity, rule, name), owners in sorted(by_kind.items(), key=lambda item: SEVERITIES.index(item[0][0])):
        few = most if severity != SEVERITIES[-1] else 1
        total = sum(map(len, owners.values()))
        named = [members for members in owners.values() if len(owners) <= few or len(members) * few >= total]
        rest = [members for members in owners.values() if not (len(owners) <= few or len(members) * few >= total)]
        result += [Cause(rule, name, severity, _who(members), 1, members) for members in named]
        if rest:
            label = f"{len(rest):,} {'more ' if named else ''}producers or groups"
            others = [f for members in rest for f in members]
            result.append(Cause(rule, name, severity, label if len(rest) > 1 else _who(others), len(rest), others))
    return result


def alone(finding: Finding) -> Cause:
    """Return a finding as a cause of its own."""
    return Cause(finding["rule"], kind(finding), finding["severity"], who(finding), 1, [finding])


def _owner(finding: Finding) -> tuple[object, ...]:
    # A transactional id keeps its findings together although its producer id changes.
    name = finding["transactional_id"]
    return (name, None if name is not None else finding["producer_id"], finding["group_id"])


def _who(findings: Sequence[Finding]) -> str:
    # Only what all of its findings share: not the epoch if it was bumped.
    first = findings[0]
    shared = {name: first[name] for name in _NAMES if all(f[name] == first[name] for f in findings)}
    named = next((e for e in (read(Evidence, f["evidence"]) for f in findings) if e.get("framework")), None)
    return who(shared | ({"evidence": named} if "transactional_id" in shared else {}))


@dataclass(frozen=True, slots=True)
class ProducerPartitions:
    """Partitions blocked by one producer, with the same status and advice, in the order given."""

    rows: Sequence[BlockedSummary]

    @property
    def first(self) -> Open:
        """The open transaction of the first partition, which is the oldest in the order of :func:`answers.blocked`."""
        return self.rows[0].holder

    @property
    def waiting(self) -> int | None:
        """The number of offsets that wait in all of them; None unless it is known for each."""
        counts = [row.holder.waiting for row in self.rows]
        return sum(c for c in counts if c is not None) if None not in counts else None

    @property
    def readers(self) -> list[str]:
        """Groups that read committed records of their topics."""
        return sorted({str(name) for row in self.rows for name in row.holder.readers})

    @property
    def groups(self) -> list[str]:
        """Groups that cannot start."""
        return sorted({name for row in self.rows for name in row.groups})


def holders(rows: Sequence[BlockedSummary]) -> list[ProducerPartitions]:
    """Group blocked partitions by producer, in the order of their first. Cost: linear."""
    by_holder: dict[tuple[object, ...], list[BlockedSummary]] = {}
    for row in rows:
        holder = row.holder
        name = holder.row.get("transactional_id")
        owner = (name, holder.row["producer_id"] if name is None else None)
        by_holder.setdefault((holder.cluster, *owner, holder.standing, holder.advice["verdict"]), []).append(row)
    return [ProducerPartitions(members) for members in by_holder.values()]


# Findings by rule and cause, limited to what a page can carry.
#
# A page has at most ``MAX_ROWS`` findings and about ``MAX_TEXT`` characters of them, shared by rules and in them by
# causes, so that a hundred thousand findings of one kind cannot hide a single one of another. Findings that are not
# shown get a line for the page's search, as far as they fit. All findings are in ``findings.jsonl``.


MAX_ROWS = 800
MAX_ROWS_PER_RULE = 250
MAX_TEXT = 3_000_000
MAX_UNSHOWN = 8_000_000  # characters of lines for the search
CAUSES = 50  # of a rule
_MESSAGE, _REMEDY, _FACT, _FACTS, _RAW = 1200, 2400, 400, 24, 3000


@dataclass(frozen=True, slots=True, eq=False)
class FindingRow:
    """A finding with its texts shortened for a page. ``facts``: its evidence in words; ``raw``: as JSON; ``anchor``:
    its anchor on the page, empty without a fingerprint, or if a finding above has the same."""

    finding: Finding
    message: str
    remedy: str
    facts: Sequence[tuple[str, str]]
    raw: str
    anchor: str = ""


@dataclass(slots=True, eq=False)
class CauseGroup:
    """The findings of a cause and the rows that are shown."""

    cause: Cause
    rows: list[FindingRow] = field(default_factory=list)

    @property
    def more(self) -> int:
        """The number of findings that are not shown."""
        return len(self.cause.findings) - len(self.rows)

    @property
    def single(self) -> bool:
        """Whether it is one finding, which needs no row to expand."""
        return len(self.cause.findings) == 1

    @property
    def places(self) -> list[str]:
        """The partitions of its findings, each once."""
        return list(dict.fromkeys(filter(None, map(log_name, self.cause.findings))))


@dataclass(slots=True)
class Group:
    """All findings of a rule: their number, the highest severity, and the causes, the worst and largest first."""

    rule: str
    severity: str
    parts: list[CauseGroup]
    count: int = 0
    by_severity: dict[str, int] = field(default_factory=dict)

    @property
    def more(self) -> int:
        """The number of findings that are not shown."""
        return self.count - sum(len(part.rows) for part in self.parts)

    @property
    def open_rows(self) -> int:
        """The number of lines when it is expanded and its causes are collapsed."""
        return len(self.rows) if len(self.parts) == 1 else len(self.parts)

    @property
    def rows(self) -> list[FindingRow]:
        """The findings that are shown."""
        return [row for part in self.parts for row in part.rows]


def group(findings: Sequence[Finding], counts: Values | None = None) -> list[Group]:
    """Group findings by rule: the highest severity first, then by number, then by name; causes in the order given.

    ``counts``: those of the summary, if fewer findings are given than were written. Cost: linear.
    """
    by_rule: dict[str, list[CauseGroup]] = {}
    for cause in causes(findings, CAUSES):
        by_rule.setdefault(cause.rule, []).append(CauseGroup(cause))
    given = (counts or {}).get("by_rule", {})
    groups = []
    for rule, parts in by_rule.items():
        parts.sort(key=lambda p: (SEVERITIES.index(p.cause.severity), -len(p.cause.findings)))
        count = sum(len(part.cause.findings) for part in parts)
        entry = Group(rule, parts[0].cause.severity, parts, max(count, given.get(rule, 0)))
        for part in parts:
            name = part.cause.severity
            entry.by_severity[name] = entry.by_severity.get(name, 0) + len(part.cause.findings)
        groups.append(entry)
    groups.sort(key=lambda g: (SEVERITIES.index(g.severity), -g.count, g.rule))
    _share_out(groups)
    return groups


def _share_out(groups: Sequence[Group]) -> None:
    # Every rule gets the same share of rows, and in it every cause, as far as the page has room.
    share = _level([sum(len(part.cause.findings) for part in g.parts) for g in groups], MAX_ROWS_PER_RULE, MAX_ROWS)
    room, anchors = MAX_TEXT, set[str]()
    for entry in groups:
        quota = _level([len(part.cause.findings) for part in entry.parts], share, share)
        for part in entry.parts:
            for finding in part.cause.findings[:quota]:
                anchor = short_fingerprint(finding)
                row = _row(finding, "" if anchor in anchors else anchor)
                anchors.add(anchor)
                length = len(row.message) + len(row.remedy) + len(row.raw) + sum(len(k) + len(v) for k, v in row.facts)
                if part.rows and length > room:
                    break
                part.rows.append(row)
                room -= length


def _level(wanted: Sequence[int], share: int, room: int) -> int:
    # The highest share, at least 1, for which the sum of min(wanted, share) fits into ``room``.
    while share > 1 and sum(min(count, share) for count in wanted) > room:
        share -= 1
    return share


def unshown(groups: Sequence[Group]) -> tuple[Markup, int]:
    """Return lines for the page's search, one per finding that is not shown, and the number of findings without either.

    A line has place, offsets, owner and fingerprint, separated by tabs. A line that begins with ``>`` has the severity
    and rule of the lines below it; ``=`` repeats the place or owner of the line above. Hidden characters are escaped.
    At most :data:`MAX_UNSHOWN` characters.
    """
    from markupsafe import Markup

    lines: list[str] = []
    room, left = MAX_UNSHOWN, 0
    for entry in groups:
        left += entry.count - sum(len(part.cause.findings) for part in entry.parts)
        for part in entry.parts:
            rest = part.cause.findings[len(part.rows) :]
            lines += [f">{part.cause.severity}\t{visible(entry.rule)}"] if rest else []
            above: tuple[str, str] = ("", "")
            for n, f in enumerate(rest):
                broker = "" if f["broker_id"] is None else f" broker {f['broker_id']}"
                columns = visible((log_name(f) or f["file"] or "") + broker), visible(who(f))
                place, owner = ("=" if n and new == old else new for new, old in zip(columns, above, strict=True))
                line = "\t".join((place, offsets(f["offset"], f["last_offset"]), owner, short_fingerprint(f)))
                room -= len(line) + 1
                if room < 0:
                    left += len(rest) - n
                    break
                lines.append(line)
                above = columns
    return Markup("\n").join(lines), left


def _row(finding: Finding, anchor: str) -> FindingRow:
    evidence = finding.get("evidence") or {}
    facts = [(name, clip(text, _FACT)) for name, text in in_words(evidence)]
    if len(facts) > _FACTS:
        facts = [*facts[:_FACTS], ("…", f"{len(facts) - _FACTS} more facts in findings.jsonl")]
    message, remedy = clip(finding["message"], _MESSAGE), clip(finding["remedy"] or "", _REMEDY)
    return FindingRow(finding, message, remedy, facts, clip(value(dict(evidence)), _RAW), anchor)


# Remedies of critical and error findings that block no partition, for page and terminal.


SHOWN = 4


@dataclass(slots=True)
class Remedy:
    """One remedy for findings of one or more rules. ``first``: the finding that it names; ``count``: the findings
    that it is for; ``others``: findings of these kinds with another remedy."""

    text: str
    severity: str
    rules: list[str]
    first: Finding
    count: int
    others: int


def remedies(findings: Sequence[Finding], blocked_rows: Sequence[BlockedSummary]) -> list[Remedy]:
    """Return one remedy per kind of critical and error findings, the most severe first: losses first, then by number.

    Kinds with findings about ``blocked_rows`` are omitted, since the remedy is shown there, and so are suppressed
    findings. Cost: linear.
    """
    answered = {kind(finding) for row in blocked_rows for finding in row.holder.findings}
    by_kind: dict[str, list[Finding]] = {}
    for finding in unaccepted(findings):
        if finding["severity"] in GRAVE and kind(finding) not in answered:
            by_kind.setdefault(kind(finding), []).append(finding)
    return _merged(sorted(by_kind.values(), key=_order))


def _order(findings: Sequence[Finding]) -> tuple[int, int, int, str]:
    worst = _worst(findings)
    return SEVERITIES.index(worst["severity"]), badness(worst), -len(findings), kind(worst)


def _worst(findings: Sequence[Finding]) -> Finding:
    return min(findings, key=lambda finding: SEVERITIES.index(finding["severity"]))


def _merged(kinds: Collection[Sequence[Finding]]) -> list[Remedy]:
    # Kinds with the same text share it: two may report both sides of one loss.
    made: dict[str, Remedy] = {}
    for findings in kinds:
        first = _worst(findings)
        text = str(first.get("remedy") or "")
        same = sum(finding.get("remedy") == text for finding in findings)
        if text in made:
            made[text].rules += [first["rule"]] if first["rule"] not in made[text].rules else []
            made[text].count += same
            made[text].others += len(findings) - same
        elif text:
            made[text] = Remedy(text, first["severity"], [first["rule"]], first, same, len(findings) - same)
    return list(made.values())


# Filters of what is printed. Results are always complete.


LEAST = SEVERITIES[-1]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which findings are printed. All kinds of filters must match, each by any of its values; empty matches all.

    ``partitions``: globs over ``topic-partition``, or a partition number; ``transactional_ids`` and ``groups``: globs;
    ``least``: the lowest severity; ``infos``: list infos, which are only counted by default.
    """

    least: str = LEAST
    partitions: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    infos: bool = False

    @property
    def narrow(self) -> bool:
        """Whether it excludes anything."""
        return self != Selection(infos=self.infos)

    def holds(self, row: Values) -> bool:
        """Whether the place and owner of a finding or partition match, whatever its severity.

        A blocked partition belongs to the groups that read it: its ``readers``.
        """
        groups = [row.get("group_id"), *(row.get("readers") or ())]
        return (
            (not self.partitions or any(is_partition(row, glob) for glob in self.partitions))
            and (not self.brokers or row.get("broker_id") in self.brokers)
            and (not self.transactional_ids or named([row.get("transactional_id")], self.transactional_ids))
            and (not self.groups or named(groups, self.groups))
        )

    def shows(self, finding: Values) -> bool:
        """Whether a finding is printed."""
        return SEVERITIES.index(finding["severity"]) <= SEVERITIES.index(self.least) and self.holds(finding)

    def text(self) -> str:
        """The selection in words; empty if it excludes nothing."""
        parts = [
            f"{what} {' or '.join(map(str, values))}"
            for what, values in (
                ("partition", self.partitions),
                ("broker", self.brokers),
                ("transactional id", self.transactional_ids),
                ("group", self.groups),
            )
            if values
        ]
        parts += [f"{self.least} and above"] if self.least != LEAST else []
        return ", ".join(parts)


ALL = Selection()


@dataclass(frozen=True, slots=True)
class Printing:
    """What a command prints, and how. ``format``: one of :data:`auditor.dashboards.output_formats.FORMATS`."""

    format: str = "table"
    quiet: bool = False
    verbose: bool = False
    selection: Selection = ALL


def is_partition(row: Values, glob: str) -> bool:
    """Whether a row is of a partition that a glob of ``--partition`` matches; of several partitions, any."""
    if row.get("topic") is None or row.get("partition") is None:
        several = read(PartitionsEvidence, row.get("evidence")).get("partitions")
        names = several if isinstance(several, list) else []
        return any(glob == name.rpartition("-")[2] or fits(name, glob) for name in names)
    return is_of(row["topic"], row["partition"], glob)


def named(values: Iterable[Any], globs: Iterable[str]) -> bool:
    """Whether any of the values matches any of the globs."""
    texts = [str(value) for value in values if value is not None]
    return any(fits(text, glob) for glob in globs for text in texts)
