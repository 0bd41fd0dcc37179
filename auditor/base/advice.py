"""Advice as an object, and what differs for Flink's transactional ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from auditor.base.at_rest import Fields, Values

# What to do about a finding, as an object: what must hold, what to look at, what to do, and what that loses.
#
# Every text that people read of it is made here, once: no surface cuts a part out of another's sentence. Rules make
# advices; in results, and for pages, one is a row (:meth:`Advice.row`), which is what the texts are made of.


class Verdict(StrEnum):
    """What the advice comes to."""

    LOOK = "look"  # nothing may be done before something is known
    WAIT = "wait"  # it ends by itself
    ACT = "act"  # all conditions hold
    DO_NOT_ACT = "do_not_act"  # what suggests itself would lose data
    DO_NOT_ABORT = "do_not_abort"  # an abort may lose data, and so may a COMMIT: nothing may be written yet


WORDS = {
    Verdict.LOOK: "Look first",
    Verdict.WAIT: "Wait",
    Verdict.ACT: "Act",
    Verdict.DO_NOT_ACT: "Do not act",
    Verdict.DO_NOT_ABORT: "Do not abort",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """What must be so before anybody acts. ``holds``: None where the input does not show it, which is not "holds";
    ``by``: what shows it, or would."""

    what: str
    holds: bool | None
    by: str


@dataclass(frozen=True, slots=True)
class CheckCommand:
    """A command that changes nothing, and what it must show for what is said to be right."""

    command: str
    expect: str


@dataclass(frozen=True, slots=True)
class Act:
    """A command that changes something, or a step by hand; one that an operator carries out as it stands."""

    command: str


@dataclass(frozen=True, slots=True)
class Moves:
    """What an advice does to the replicas of its partition, by broker: ``away`` loses its folder and is fetched again
    from one of ``sources``; ``leads`` is made leader. None and empty for none. It is on no surface: advices of one run
    are held against each other by it (:mod:`auditor.rules.resolution.resolve`)."""

    away: int | None = None
    sources: tuple[int, ...] = ()
    leads: int | None = None


NOTHING_MOVES = Moves()


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about a finding.

    ``cost``: what acting, or waiting, takes away, in a sentence; ``loses``: the same in numbers, which no text says
    again; ``then``: what comes after, or what there is to say where there is no command. Errors: ValueError for acts
    whose conditions are not known to hold: nothing that changes a cluster is printed then.
    """

    verdict: Verdict
    cost: str = ""
    conditions: tuple[Condition, ...] = ()
    look: tuple[CheckCommand, ...] = ()
    act: tuple[Act, ...] = ()
    loses: str = ""
    then: str = ""
    moves: Moves = field(default=NOTHING_MOVES)

    def __post_init__(self) -> None:
        if self.act and (self.verdict is not Verdict.ACT or any(c.holds is not True for c in self.conditions)):
            raise ValueError(f"acts without conditions known to hold: {self.act}")

    def row(self) -> Fields:
        """As ``findings.jsonl`` has it."""
        return {name: value for name, value in self.carried().items() if name != "moves"}

    def carried(self) -> Fields:
        """:meth:`row` with what is on no surface, for :meth:`of` in another process."""
        return {**asdict(self), "verdict": self.verdict.value}

    @classmethod
    def of(cls, row: Values) -> Advice:
        """What :meth:`row` or :meth:`carried` made."""
        moves = dict(row.get("moves") or {})
        return cls(
            Verdict(row["verdict"]),
            row["cost"],
            tuple(Condition(**each) for each in row["conditions"]),
            tuple(CheckCommand(**each) for each in row["look"]),
            tuple(Act(**each) for each in row["act"]),
            row["loses"],
            row["then"],
            Moves(moves["away"], tuple(moves["sources"]), moves["leads"]) if moves else NOTHING_MOVES,
        )

    def unless(self, *doubted: Condition) -> Advice:
        """The same where these conditions have to hold too: without its acts unless all of them are known to."""
        conditions = (*self.conditions, *doubted)
        if not self.act or all(each.holds for each in doubted):
            return replace(self, conditions=conditions)
        return replace(self, verdict=Verdict.LOOK, conditions=conditions, act=(), moves=NOTHING_MOVES)

    def worded(self, change: Callable[[str], str]) -> Advice:
        """The same with another wording of all that may hold a command."""
        return replace(
            self,
            look=tuple(replace(each, command=change(each.command)) for each in self.look),
            act=tuple(Act(change(each.command)) for each in self.act),
            then=change(self.then),
        )


_OLD_TONES = {"act": Verdict.ACT, "wait": Verdict.WAIT, "stop": Verdict.DO_NOT_ACT, "ask": Verdict.LOOK}


def whole(given: Values | None) -> Fields | None:
    """An advice as a row, of a kept run of any release: one before advices were objects says a verdict in words, its
    tone and what it costs. None for none."""
    if not given:
        return None
    if "tone" not in given:
        return {**Advice(Verdict(given["verdict"])).row(), **given}
    words, cost = str(given.get("verdict") or ""), str(given.get("cost") or "")
    return Advice(_OLD_TONES.get(given["tone"], Verdict.LOOK), f"{words}. {cost}".strip(". ")).row()


Piece = tuple[str, str]  # "text" or "command", and what it says


def lead(advice: Values) -> str:
    """The verdict and its cost: what stands first on every surface, and alone where there is room for one line."""
    word = WORDS[Verdict(advice["verdict"])]
    return _sentence(f"{word}: {advice['cost']}" if advice["cost"] else word)


def pieces(advice: Values) -> list[Piece]:
    """An advice in reading order, from the verdict on: sentences, and commands that stand on lines of their own. What
    a rule says of all its findings, that and no more, is said without a verdict."""
    only_said = not any(advice[name] for name in ("cost", "conditions", "look", "act"))
    if only_said and advice["then"] and advice["verdict"] == Verdict.LOOK:
        return steps(advice)
    return [("text", lead(advice)), *steps(advice)]


def steps(advice: Values) -> list[Piece]:
    """The same without :func:`lead`, for what stands below it."""
    return [*_conditions(advice), *_commands(advice), *_afterwards(advice)]


def text(advice: Values) -> str:
    """An advice on one line: what ``remedy`` is, and what programs print that know no lines."""
    return joined(pieces(advice))


def joined(parts: Iterable[Piece]) -> str:
    """Parts of an advice on one line; a semicolon ends a command, so that no word behind it is pasted with it."""
    out = ""
    for kind, said in parts:
        out += f"{' ' if out else ''}{said}{' ;' if kind == 'command' else ''}"
    return out.removesuffix(" ;")


def is_command(words: str) -> bool:
    """Whether words are to be pasted as they stand."""
    return words.startswith("kafka-")


def _conditions(advice: Values) -> Iterator[Piece]:
    for holds, word in ((True, "Known"), (False, "Not so"), (None, "Not known")):
        those = [f"{each['what']} ({each['by']})" for each in advice["conditions"] if each["holds"] is holds]
        if those:
            yield "text", _sentence(f"{word}: {'; '.join(those)}")


def _commands(advice: Values) -> Iterator[Piece]:
    before = "Go on only if" if advice["verdict"] in (Verdict.LOOK, Verdict.ACT) else "This holds while"
    for each in advice["look"]:
        yield "command" if is_command(each["command"]) else "text", each["command"]
        if each["expect"]:
            yield "text", _sentence(f"{before} {each['expect']}")
    for each in advice["act"]:
        words = each["command"]
        yield ("command", words) if is_command(words) else ("text", _sentence(words))


def _afterwards(advice: Values) -> Iterator[Piece]:
    if advice["then"]:
        yield "text", _sentence(advice["then"])


def _sentence(words: str) -> str:
    begun = words[:1].upper() + words[1:] if words.split(" ")[0].rstrip(":,").isalpha() else words
    return begun if begun.endswith((".", "!", "?")) else f"{begun}."


# Transactional ids that may be Flink's, and what has to be said of their transactions.
#
# A Flink sink pre-commits a transaction with a checkpoint and commits it once the checkpoint is complete, after a
# restart
# too: its data is committed by restoring the job, not by writing it again. Source: TransactionalIdFactory and
# TransactionNamingStrategyContextImpl of flink-connector-kafka; FLINK-23854, FLINK-39218.


# PREFIX-SUBTASK-CHECKPOINT, an int and a long; pooled ids have a counter in place of the checkpoint.
_ID = re.compile(r".+-[0-9]{1,10}-[0-9]{1,19}", re.DOTALL)
IF_FLINK = (
    "If this is Flink: restoring the job from a checkpoint or savepoint commits the transactions which it holds and "
    "aborts the others; an abort by hand may lose records that it counts as written"
)


def may_be_flinks(transactional_id: str | None) -> bool:
    """Whether a transactional id has the form of Flink's."""
    return transactional_id is not None and _ID.fullmatch(transactional_id) is not None


def sent_again(transactional_id: str | None, data: str) -> str:
    """How to make up for committed records (``data``: their offsets in words) that no consumer gets, in words."""
    if may_be_flinks(transactional_id):
        return f"if this is Flink: no checkpoint brings the records of {data} back"
    return f"send the records of {data} again"


def for_flink(transactional_id: str | None, advice: Advice) -> Advice:
    """An advice about an id's transaction, which says what is different if the id is Flink's."""
    if not may_be_flinks(transactional_id) or IF_FLINK in advice.then or Act(IF_FLINK) in advice.act:
        return advice
    if advice.act:
        return replace(advice, act=(Act(IF_FLINK), *advice.act))
    rest = f". {advice.then[:1].upper()}{advice.then[1:]}" if advice.then else ""
    return replace(advice, then=f"{IF_FLINK}{rest}")
