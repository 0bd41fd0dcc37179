"""What producers wrote down and consumers got, compared with the rows of ``impact``.

Which records a row names is read from what DumpLogSegments prints of the replica that the row names. Where no replica
has them, it is read from the offsets that the producers were told. Where they have no offset, it is read from the
sequence numbers around them, or from the transactions in ``__transaction_state``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.broker.dumped import StateRecord, Stored, StoredRecord

At = tuple[str, int]  # topic and partition
Row = dict[str, Any]
BEGUN_AGAIN = "no trace: its producer's numbers begin again"
NOTHING_AFTER = "no trace: its producer sent nothing after it that is stored"
UNNUMBERED = "no trace: its producer sends no numbers"


@dataclass
class Entry:
    """A record in a ledger. ``transaction``: 0 for none; ``ended``: what its producer knows of that."""

    transaction: int
    offset: int | None = None  # as acknowledged
    failed: str = ""
    ended: str = ""

    @property
    def relied_on(self) -> bool:
        """Whether its producer may rely on it."""
        return self.offset is not None and (not self.transaction or self.ended == "commit")


@dataclass
class Finds:
    """Counts of a run, and each disagreement in words."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def entries(file: Path) -> dict[tuple[int, int], Entry]:
    """The entries of a ledger by partition and number."""
    found: dict[tuple[int, int], Entry] = {}
    ends: dict[int, str] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        kind, *words = line.split()
        if kind == "end":
            ends[int(words[0])] = words[1]
            continue
        at = int(words[0]), int(words[1])
        if kind == "sent":
            found[at] = Entry(int(words[2]))
        elif kind == "ack":
            found[at].offset = int(words[2])
        else:
            found[at].failed = words[2]
    for entry in found.values():
        entry.ended = ends.get(entry.transaction, "unknown") if entry.transaction else ""
    return found


def committed(
    states: list[list[StateRecord]], books: dict[str, dict[tuple[int, int], Entry]]
) -> dict[str, tuple[str, int]]:
    """Which transaction of which ledger has which key in the table ``transactions``: the k-th COMMIT of an id is the
    k-th that its producer was told. Of an id with an unknown end none."""
    found: dict[str, tuple[str, int]] = {}
    for name, book in books.items():
        ends = {entry.transaction: entry.ended for entry in book.values()}
        if "unknown" in ends.values():
            continue
        told = iter(sorted(number for number, end in ends.items() if end == "commit"))
        began = -1
        for record in (r for records in states for r in records if r.transactional_id == name):
            if record.state == "Ongoing" and began < 0:
                began = record.offset
            elif record.state.startswith("Complete"):
                if record.state == "CompleteCommit":
                    found[f"{record.producer_id}:{began}"] = (name, next(told))
                began = -1
    return found


@dataclass
class Log:
    """One partition. ``names``: value of each entry; ``got``: values that a read_committed consumer got, in order."""

    at: At
    book: dict[str, Entry]
    got: list[str]
    end: int  # the last stable offset, as the consumer saw it
    leader: str
    replicas: dict[str, list[StoredRecord]]
    transactions: dict[str, tuple[str, int]]

    def named(self, row: Row) -> list[str] | None:
        """The values that a row names; None if nothing tells which."""
        first, last = row["first_offset"], row["last_offset"]
        if row["kind"] == "missing-marker":
            owner, number = self.transactions[row["transaction"]]
            return [n for n, e in self.book.items() if e.transaction == number and n.startswith(f"{owner}.")]
        if first is None:
            return self._between(row)
        producer = (row["producer_id"], row["producer_epoch"]) if row["producer_id"] is not None else (-1, None)
        log_dir = row["other_log_dir"] or row["log_dir"]
        if row["records"] is None:
            return [name for name, e in self.book.items() if e.offset is not None and first <= e.offset <= last]
        return [
            r.value
            for r in self.replicas.get(log_dir, ())
            if first <= r.offset <= last
            and r.producer_id == producer[0]
            and (producer[1] is None or r.epoch == producer[1])
        ]

    def _between(self, row: Row) -> list[str] | None:
        """The entries of a gap between sequence numbers."""
        mine = [
            r
            for r in self.replicas[self.leader]
            if (r.producer_id, r.epoch) == (row["producer_id"], row["producer_epoch"])
        ]
        behind = [r for r in mine if r.sequence == row["first_sequence"] + row["records"]]
        if not behind:
            return None
        name, partition, number = behind[0].value.rsplit(".", 2)
        return [f"{name}.{partition}.{int(number) - k}" for k in range(row["records"], 0, -1)]

    def gap_behind(self, value: str) -> str:
        """Why nothing shows that a record is missing; empty if its producer's next numbers do."""
        name, partition, number = value.rsplit(".", 2)
        mine = sorted(
            (int(r.value.rsplit(".", 1)[1]), r)
            for r in self.replicas[self.leader]
            if r.value.startswith(f"{name}.{partition}.")
        )
        before = [r for n, r in mine if n < int(number)]
        behind = [r for n, r in mine if n > int(number)]
        if not behind:
            return NOTHING_AFTER
        if behind[0].sequence < 0:
            return UNNUMBERED
        same = before and (before[-1].producer_id, before[-1].epoch) == (behind[0].producer_id, behind[0].epoch)
        expected = before[-1].sequence + 1 if same else 0
        return BEGUN_AGAIN if behind[0].sequence == expected else ""


def logs(
    topics: dict[str, str],
    books: dict[str, dict[tuple[int, int], Entry]],
    got: dict[At, tuple[list[list[Any]], list[list[Any]]]],
    leaders: dict[At, int],
    stores: dict[str, Stored],
    transactions: dict[str, tuple[str, int]],
) -> Iterator[Log]:
    """Each partition with the ledgers of it."""
    for at, (seen, _) in got.items():
        book = {
            f"{name}.{p}.{number}": entry
            for name, entries_of in books.items()
            for (p, number), entry in entries_of.items()
            if (topics[name], p) == at
        }
        visible = {offset for offset, _ in seen}
        end = max(visible, default=-1) + 1 if visible else 0
        replicas = {log_dir: of.get(at, []) for log_dir, of in stores.items()}
        yield Log(at, book, [v for _, v in seen], end, f"broker-{leaders[at]}", replicas, transactions)


def compared(
    topics: dict[str, str],
    books: dict[str, dict[tuple[int, int], Entry]],
    got: dict[At, tuple[list[list[Any]], list[list[Any]]]],
    leaders: dict[At, int],
    stores: dict[str, Stored],
    transactions: dict[str, tuple[str, int]],
    rows: list[Row],
    findings: list[Row],
) -> Finds:
    """Compare; see the module."""
    finds = Finds()
    for log in logs(topics, books, got, leaders, stores, transactions):
        mine = [row for row in rows if (row["topic"], row["partition"]) == log.at]
        blocked = any(
            (f["topic"], f["partition"]) == log.at
            and (
                f["outcome"] in ("blocked", "unreadable")
                or f["kind"] in ("long-open-transaction", "hanging-transaction")
            )
            for f in findings
        )
        _sums(log, finds)
        _missing(log, mine, blocked, finds)
        _twice(log, mine, finds)
    return finds


def _sums(log: Log, finds: Finds) -> None:
    count = finds.counts
    count["ledgers"] += len({name.split(".")[0] for name in log.book})
    count["sent"] += len(log.book)
    count["acknowledged"] += sum(e.offset is not None for e in log.book.values())
    count["relied on"] += sum(e.relied_on for e in log.book.values())
    count["unanswered"] += sum(e.offset is None for e in log.book.values())
    count["aborted"] += sum(e.offset is not None and e.ended == "abort" for e in log.book.values())
    count["unknown end"] += sum(e.offset is not None and e.ended == "unknown" for e in log.book.values())
    count["got"] += len(log.got)
    unknown = set(log.got) - set(log.book)
    if unknown:
        finds.wrong.append(f"{log.at}: got what nobody sent: {sorted(unknown)[:3]}")


def _missing(log: Log, rows: list[Row], blocked: bool, finds: Finds) -> None:
    """Records that a consumer does not get, and those that rows name as lost or hidden."""
    seen, count = set(log.got), finds.counts
    listed: dict[str, str] = {}
    for row in rows:
        if row["outcome"] not in ("lost", "hidden"):
            continue
        names = log.named(row)
        place = (
            f"{log.at} {row['outcome']} {row['kind']} {row['first_offset']}..{row['last_offset']} of {row['log_dir']}"
        )
        if names is None:
            finds.wrong.append(f"{place}: nothing tells which records it names")
            continue
        if row["records"] is not None and row["records"] != len(names):
            finds.wrong.append(f"{place}: {row['records']} records, {len(names)} by the dump")
        false = [name for name in names if name in seen and row["sent_again"] is not True]
        count["rows"] += 1
        count["named twice"] += len(listed.keys() & set(names))
        count["false"] += len(false)
        if false:
            kinds = Counter(name.split(".")[0] for name in false)
            finds.wrong.append(f"{place}: names {len(false)} records that the consumer got {dict(kinds)} {false[:3]}")
        listed.update(dict.fromkeys(names, row["outcome"]))
        count["listed, though not relied on"] += sum(
            name in log.book and not log.book[name].relied_on for name in names
        )
    missing = [name for name, e in log.book.items() if e.relied_on and name not in seen]
    count["missing"] += len(missing)
    reasons: dict[str, list[str]] = defaultdict(list)
    for name in missing:
        if name in listed:
            count[f"listed: {listed[name]}"] += 1
        else:
            reasons[_why(log, name, blocked)].append(name)
    for why, names in reasons.items():
        count[why] += len(names)
        if not why.startswith("no trace") and why != "blocked":
            kinds = Counter(name.split(".")[0] for name in names)
            offsets = [log.book[name].offset for name in names]
            finds.wrong.append(
                f"{log.at} not listed: {len(names)} {dict(kinds)} {why}; {names[0]} at {offsets[0]} .. {offsets[-1]}"
            )


def _why(log: Log, name: str, blocked: bool) -> str:
    for log_dir, records in log.replicas.items():
        for r in records:
            if r.value != name:
                continue
            if log_dir != log.leader:
                return f"stored on {log_dir}"
            if r.offset >= log.end:
                return "blocked" if blocked else "blocked, and no finding says so"
            return "stored in the leader's log"
    return log.gap_behind(name) or "its producer's numbers have a gap"


def _twice(log: Log, rows: list[Row], finds: Finds) -> None:
    """Records that a consumer gets twice, and those that rows name so; records of aborted transactions likewise."""
    times, count = Counter(log.got), finds.counts
    listed: dict[str, set[str]] = {"duplicated": set(), "exposed": set()}
    for row in rows:
        if row["outcome"] not in listed or row["groups"]:
            continue
        names = log.named(row) or []
        false = (
            [n for n in names if times[n] < 2]
            if row["outcome"] == "duplicated"
            else [n for n in names if n not in times or log.book[n].ended != "abort"]
        )
        count["false"] += len(false)
        if false:
            place = f"{row['kind']} {row['first_offset']}..{row['last_offset']} of {row['log_dir']}"
            finds.wrong.append(f"{log.at} {row['outcome']} {place}: {len(false)} false, as {false[:3]}")
        listed[row["outcome"]].update(names)
    producers = {r.value: r.producer_id for r in log.replicas[log.leader]}
    for name, n in times.items():
        if n > 1:
            count["twice"] += 1
            if name in listed["duplicated"]:
                count["twice, listed"] += 1
            elif producers.get(name, -1) < 0:
                count["twice, no trace: its producer sends no numbers"] += 1
            else:
                finds.wrong.append(f"{log.at} twice and not listed: {name}")
        if log.book[name].ended == "abort":
            count["exposed"] += 1
            if name not in listed["exposed"]:
                finds.wrong.append(f"{log.at} aborted, got and not listed: {name}")
