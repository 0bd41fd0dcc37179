"""What an audit has to say of each batch of a log, by the leader's answer to it and by arithmetic on its numbers.

What Kafka accepts gives no event and no verdict; what it refuses, and is forced in, gives an event of its kind at its
offset and a verdict. The exceptions, and there are no others:

(a) FIRST_NONZERO is noted although brokers since 2.5 accept any first sequence of a producer that they do not know.
(b) A batch that continues a forced repetition is accepted by the state as if, but its sequences are stored before:
    SEQUENCE_OVERLAP.
(c) A second batch or marker of a fenced epoch, or of a coordinator that has been replaced, is accepted by the state as
    if, but lies below the highest epoch seen: EPOCH_REGRESSION, MARKER_EPOCH_REGRESSION, COORDINATOR_EPOCH_REGRESSION.
    Its sequences are another instance's: nothing is said of them. Where a marker alone has raised the epoch, they are
    still those of the producer's data before, and may be odd as well.
(d) A batch that goes on exactly where its producer stood before a forced repetition or something forced of an older
    epoch: the state as if refuses it, and the audit notes SEQUENCE_RESUMED; a refused batch without an event there is
    none. An audit keeps one such place, the newest: at one from further back, or where it depends on what counts as
    the repetition where the producer stands, it may be SEQUENCE_GAP. One that begins at 0 behind a forced batch of an
    older epoch the state as if takes for the first of its epoch, and the audit for the reset that it is.
(e) Of a producer's first batch above the log start it depends on what lies below, which rules ask for, not events:
    FIRST_NONZERO stands for all its sequence may be, and what it would be below the log start may be said or not.
(f) A producer that began again at 0 in its epoch, which is said, numbers anew: where it goes on from there, and only
    there, the state as if may still have batches with these numbers and take it for a retry. SEQUENCE_RESUMED, which
    accuses nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from auditor.facts.events import EventKind
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.policies import DUPLICATE, ERRORS
from tests.proof import stored_history
from tests.proof.stored_history import ACCEPTED, MAX_SEQUENCE, Stored, after

SEQUENCE_KINDS = frozenset(
    {
        EventKind.SEQUENCE_GAP,
        EventKind.SEQUENCE_OVERLAP,
        EventKind.SEQUENCE_RESET,
        EventKind.BUMP_NONZERO,
        EventKind.FIRST_NONZERO,
        EventKind.SEQUENCE_RESUMED,
    }
)
RESUMED = frozenset({EventKind.SEQUENCE_RESUMED})
KINDS = SEQUENCE_KINDS | {
    EventKind.EPOCH_REGRESSION,
    EventKind.MARKER_EPOCH_REGRESSION,
    EventKind.PLAIN_IN_TRANSACTION,
    EventKind.COORDINATOR_EPOCH_REGRESSION,
}
MARKER_KINDS = frozenset({EventKind.MARKER_EPOCH_REGRESSION, EventKind.COORDINATOR_EPOCH_REGRESSION})
NONE: frozenset[EventKind] = frozenset()
BELOW = -1
PERHAPS, SURELY = 1, 2
CODES = {name: code for code, name in ERRORS.items()} | {stored_history.DUPLICATE: DUPLICATE}
OF_SEQUENCES = {
    "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "DUPLICATE_SEQUENCE_NUMBER", stored_history.DUPLICATE,
}  # fmt: skip


class Said(NamedTuple):
    """What must be said of a batch, each set by one of its kinds, and what may be said beside it.

    ``verdict``: True where a verdict must be, False where none may be, None where what is missing decides.
    """

    must: tuple[frozenset[EventKind], ...]
    may: frozenset[EventKind]
    verdict: bool | None


class Range(NamedTuple):
    """Sequences stored: the first, how many, in which numbering of the epoch, or BELOW the log start."""

    first: int
    many: int
    numbering: int


@dataclass
class Account:
    """A producer by the log alone: what stands in it, and what a leader would have as its state.

    ``epoch``: that of its data, and ``highest`` that of anything; ``front``: the sequence that it comes to next,
    whatever was repeated, -1 before any, and ``stood`` where that was before repetitions; ``as_if``: epoch and next
    sequence in the leader's state; ``repeating``: the batches since a repetition follow one another; ``numbering``: how
    often it began again at 0 in its epoch (``anew``: or perhaps did), and ``zero`` what made up the batch that did
    last. ``judged``: a batch of data above the log start has been seen.
    """

    epoch: int = -1
    highest: int = -1
    below: int = -1  # the highest epoch below the log start
    front: int = -1
    as_if: tuple[int, int] = (-1, -1)
    coordinator: int = -1
    ranges: list[Range] = field(default_factory=list)
    stood: set[int] = field(default_factory=set)
    zero: tuple[int, ...] | None = None
    zero_below: bool = False
    numbering: int = 0
    anew: bool = False
    repeating: int = 0  # 0, PERHAPS or SURELY
    open: bool = False
    judged: bool = False

    def touched(self, first: int, count: int) -> set[int]:
        """The numberings in which some of these sequences are stored."""
        return {
            r.numbering for r in self.ranges
            if (first - r.first) & MAX_SEQUENCE < r.many or (r.first - first) & MAX_SEQUENCE < count
        }  # fmt: skip

    def kinds(self, item: dict[str, Any], content: int) -> tuple[frozenset[EventKind], bool]:
        """What the numbers of a batch of data are behind all before, and whether one of these must be said."""
        first, touched = item["first_seq"], self.touched(item["first_seq"], _count(item))
        again = self.numbering in touched
        if self.front < 0 or item["epoch"] > self.epoch:
            return _one(EventKind.FIRST_NONZERO if self.front < 0 else EventKind.BUMP_NONZERO if first else None, first)
        if self.as_if == (item["epoch"], first):
            said = again or (self.repeating and touched)
            return frozenset({EventKind.SEQUENCE_OVERLAP} if said else ()), self.repeating == SURELY and again
        if self.stood_at(item) and not again:
            return frozenset({EventKind.SEQUENCE_OVERLAP} if touched else ()), False
        if first == 0:
            same = self.zero == _bytes(item, content)
            either = (same and self.zero_below) or self.stood_at(item)
            both = {EventKind.SEQUENCE_OVERLAP, EventKind.SEQUENCE_RESET} if either else set()
            return frozenset(both or {EventKind.SEQUENCE_OVERLAP if same else EventKind.SEQUENCE_RESET}), True
        if self.stood_at(item):
            return frozenset({EventKind.SEQUENCE_OVERLAP}) | RESUMED, True
        if again or not touched:
            return _one(EventKind.SEQUENCE_OVERLAP if again else EventKind.SEQUENCE_GAP, 1)
        return frozenset({EventKind.SEQUENCE_OVERLAP, EventKind.SEQUENCE_GAP}), True

    def stood_at(self, item: dict[str, Any]) -> bool:
        """Whether a batch of data begins where the producer stood, now or before something was repeated."""
        return item["epoch"] == self.epoch and item["first_seq"] in {self.front, *self.stood}

    def take(self, item: dict[str, Any], content: int, *, judged: bool, repeated: bool) -> None:
        """Takes in a batch of data; ``repeated``: the leader has just this one among its newest."""
        first, count, epoch = item["first_seq"], _count(item), item["epoch"]
        kinds, must = self.kinds(item, content)
        end = after(first, count)
        was, self.as_if = self.as_if, (epoch, end)
        continues = was == (epoch, first)
        self.open, self.judged = self.open or item["transactional"], self.judged or judged
        self.note_epoch(epoch, judged=judged)
        repeats = EventKind.SEQUENCE_OVERLAP in kinds
        if (repeats and not continues) or epoch < self.epoch:
            self.stood |= {self.front, was[1] if was[0] == self.epoch else self.front}
        if epoch < self.epoch:
            return
        if epoch > self.epoch:
            self.ranges, self.numbering, self.stood, self.zero, self.anew = [], 0, set(), None, False
        self.anew |= EventKind.SEQUENCE_RESET in kinds or (first == 0 and not continues)
        if kinds == {EventKind.SEQUENCE_RESET}:
            self.numbering += 1
        if not continues:
            self.repeating = SURELY if must and kinds == {EventKind.SEQUENCE_OVERLAP} else PERHAPS if repeats else 0
        else:
            self.repeating = min(self.repeating, SURELY if must else PERHAPS) if repeats else 0
        if repeated:
            self.repeating = max(self.repeating, PERHAPS)
        back = (end - self.front) & MAX_SEQUENCE >= MAX_SEQUENCE // 2
        if epoch > self.epoch or not (self.repeating and back):
            self.front = end
        if first == 0:
            self.zero, self.zero_below = _bytes(item, content), not judged
        self.ranges.append(Range(first, count, self.numbering if judged else BELOW))
        self.epoch = epoch

    def note_epoch(self, epoch: int, *, judged: bool) -> None:
        """An epoch of data or of a marker."""
        if judged:
            self.highest = max(self.highest, epoch)
        else:
            self.below = max(self.below, epoch)

    def take_marker(self, item: dict[str, Any], *, judged: bool) -> None:
        """Takes in a marker: one of another epoch leaves no batches in a leader's state."""
        self.open = False
        if item["epoch"] < self.as_if[0] == self.epoch:
            self.stood |= {self.as_if[1]}
        self.note_epoch(item["epoch"], judged=judged)
        if judged:
            self.coordinator = max(self.coordinator, item["coordinator_epoch"])
        if self.as_if[0] != item["epoch"]:
            self.as_if = (item["epoch"], -1)


def _count(item: dict[str, Any]) -> int:
    return int(item["last_offset"] - item["first_offset"] + 1)


def _bytes(item: dict[str, Any], content: int) -> tuple[int, ...]:
    return item["last_seq"], item["timestamp"], item["transactional"], content


def _one(kind: EventKind | None, must: int) -> tuple[frozenset[EventKind], bool]:
    return (frozenset({kind}), True) if kind is not None and must else (NONE, False)


def of_data(account: Account, stored: Stored, said: str, *, cut: bool, evicts: bool) -> Said:
    """What has to be said of a batch of data above the log start. ``cut``: something lies below it; ``evicts``: the
    broker forgets who has nothing above it."""
    item, refused = stored.item, said != ACCEPTED
    verdict = None if refused and cut and evicts else refused
    kinds, must = account.kinds(item, stored.content)
    must = must and (refused or not account.anew)  # (f)
    may = frozenset({EventKind.PLAIN_IN_TRANSACTION}) if account.open and not item["transactional"] else NONE
    if item["epoch"] < max(account.highest, account.below):  # (c): its sequences are another instance's
        wanted = (frozenset({EventKind.EPOCH_REGRESSION}),) if item["epoch"] < account.highest else ()
        verdict = None if refused and cut and not account.judged else verdict  # (e)
        fenced = account.judged and not cut and item["epoch"] < account.epoch  # by data, not by a marker alone
        return Said(wanted, may | (NONE if fenced else SEQUENCE_KINDS) | {EventKind.EPOCH_REGRESSION}, verdict)
    back, first = account.stood_at(item), item["first_seq"]
    if cut and not account.judged:  # (e)
        wanted = (SEQUENCE_KINDS,) if said in OF_SEQUENCES and first and not back else ()
        if not first and account.zero == _bytes(item, stored.content):  # (b), and goes on from a forced one
            may |= {EventKind.SEQUENCE_OVERLAP}
        return Said(wanted, may | kinds | (SEQUENCE_KINDS if refused or first else NONE), None if refused else False)
    touched = account.touched(first, _count(item))
    behind_older = account.as_if[0] < item["epoch"] == account.epoch
    from_zero = frozenset({EventKind.SEQUENCE_RESET} if behind_older and first == 0 else ())  # (d)
    if said == "INVALID_TXN_STATE":
        return Said((may,), kinds | from_zero | ({EventKind.SEQUENCE_OVERLAP} if touched else NONE), verdict)
    may |= from_zero
    known = touched != {BELOW} and any(r.numbering != BELOW for r in account.ranges)
    if cut and said in OF_SEQUENCES and not known and item["epoch"] == account.epoch:  # (e)
        return Said((), may | SEQUENCE_KINDS, verdict)
    if cut and BELOW in touched:  # (e)
        may, must = may | {EventKind.SEQUENCE_OVERLAP}, must and refused
    goes_on = account.as_if == (item["epoch"], first)
    if said == stored_history.DUPLICATE and (touched - {BELOW}) and (first or goes_on):
        anew = RESUMED if account.anew and (back or goes_on) else NONE  # (f)
        kinds, must = frozenset({EventKind.SEQUENCE_OVERLAP}) | anew, True
    if said in OF_SEQUENCES and not must:  # (d), and nothing else
        resumed = RESUMED if first else RESUMED | {EventKind.SEQUENCE_RESET}
        sure = {first} == {account.front, *account.stood} and not account.anew and account.repeating != PERHAPS
        resumed = resumed if sure else resumed | {EventKind.SEQUENCE_GAP}
        return Said((resumed | kinds,) if back else (NONE,), may | kinds | (resumed if back else NONE), verdict)
    return Said((kinds,) if must and (known or refused) else (), may | kinds, verdict)  # (a), (b), (e)


def of_marker(account: Account, item: dict[str, Any], said: str, *, evicts: bool) -> Said:
    """What has to be said of a marker above the log start."""
    old = item["epoch"] < account.highest
    kinds = frozenset(
        ({EventKind.COORDINATOR_EPOCH_REGRESSION} if item["coordinator_epoch"] < account.coordinator else set())
        | ({EventKind.MARKER_EPOCH_REGRESSION} if old else set())
    )
    must = frozenset({EventKind.MARKER_EPOCH_REGRESSION}) if old else kinds
    verdict = (None if evicts else True) if said != ACCEPTED else False
    if said != ACCEPTED and not must:  # (e): by what lies below the log start
        return Said((), MARKER_KINDS, verdict)
    return Said((must,) if must else (), kinds, verdict)


class Comparison:
    """One log: what was said of its batches against what has to be."""

    def __init__(
        self, log: Sequence[Stored], answers: Sequence[str], log_start: int = 0, *, evicts: bool = False
    ) -> None:
        self.log, self.answers, self.log_start, self.evicts = log, answers, log_start, evicts

    def expected(self) -> Iterator[tuple[Stored, str, Said]]:
        """Each batch with its answer and what has to be said of it."""
        accounts: dict[int, Account] = {}
        for stored, said in zip(self.log, self.answers, strict=True):
            item = stored.item
            if item["kind"] not in ("batch", "marker"):
                yield stored, said, Said((), frozenset(), verdict=False)
                continue
            account = accounts.setdefault(item["pid"], Account())
            judged = item["last_offset"] >= self.log_start
            cut, what = self.log_start > 0, Said((), NONE, verdict=False)
            if judged and item["kind"] == "batch":
                what = of_data(account, stored, said, cut=cut, evicts=self.evicts)
            elif judged:
                what = of_marker(account, item, said, evicts=cut and self.evicts)
            yield stored, said, what
            if item["kind"] == "batch":
                account.take(item, stored.content, judged=judged, repeated=said == stored_history.DUPLICATE)
            else:
                account.take_marker(item, judged=judged)

    def differences(self, facts: ReplicaFacts, policy: str) -> Iterator[str]:
        """A line for each batch of which the audit, or the what-if under the policy, does not say what it has to."""
        events: dict[int, set[EventKind]] = {}
        for event in facts.events:
            if event["kind"] in KINDS:
                events.setdefault(int(event["base_offset"]), set()).add(EventKind(int(event["kind"])))
        assert facts.outcomes is not None
        verdicts = facts.outcomes.by_policy[policy].verdicts
        for stored, said, what in self.expected():
            at = stored.item["first_offset"]
            found = frozenset(events.pop(at, set()))
            allowed = what.may.union(*what.must)
            if found - allowed or not all(found & one for one in what.must):
                yield f"{at}: answer {said}, events {_names(found)}, not {_wanted(what)}"
            if found_verdict := verdict_difference(stored, said, what.verdict, verdicts):
                yield f"{at}: {found_verdict}"
        for at, kinds in sorted(events.items()):
            yield f"{at}: events {_names(kinds)} where no batch begins"


def verdict_difference(stored: Stored, said: str, wanted: bool | None, verdicts: Any) -> str | None:
    """What is wrong with the verdicts about a batch, None if nothing is."""
    item = stored.item
    runs = [v for v in verdicts if v["producer_id"] == item.get("pid", -1)]
    begins = [v for v in runs if v["base_offset"] == item["first_offset"]]
    inside = [v for v in runs if v["base_offset"] <= item["first_offset"] <= v["run_last_offset"]]
    if said == ACCEPTED:
        # A marker that is accepted may lie within a run of its producer's data.
        wrong = begins if item["kind"] == "marker" else inside
        return f"accepted, verdict {wrong[0]['error']}" if wrong else None
    if any(v["error"] == CODES[said] for v in inside):
        return f"answer {said} below the log start, yet a verdict" if wanted is False else None
    if wanted:
        return f"answer {said}, no verdict of it, but {[int(v['error']) for v in inside]}"
    return None


def _names(kinds: Any) -> str:
    return "+".join(sorted(kind.name for kind in kinds)) or "none"


def _wanted(what: Said) -> str:
    return " and ".join(_names(one) for one in what.must) + f" (or {_names(what.may)})"
