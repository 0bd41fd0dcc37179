"""Advice on a finding as an object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from auditor.base.at_rest import Fields, Values

# Rules create advices; results and pages have them as rows (:meth:`Advice.row`). All texts about an advice are rendered
# from its row here, so that no output cuts a part out of another's sentence.


class Verdict(StrEnum):
    """The kind of an advice."""

    LOOK = "look"  # more must be known before anything is done
    WAIT = "wait"  # it ends by itself
    ACT = "act"  # all conditions hold
    DO_NOT_ACT = "do_not_act"  # the obvious action would lose data
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
    """What must hold before anyone acts.

    ``holds``: None if the input does not show it, which is not "holds"; ``by``: what shows it, or would show it.
    """

    what: str
    holds: bool | None
    by: str


@dataclass(frozen=True, slots=True)
class CheckCommand:
    """A command that changes nothing, and the output that confirms the finding."""

    command: str
    expect: str


@dataclass(frozen=True, slots=True)
class Act:
    """A command that changes something, or a manual step that an operator carries out as written."""

    command: str


@dataclass(frozen=True, slots=True)
class Moves:
    """What an advice does to the replicas of its partition, by broker.

    ``away`` loses its directory and is fetched again from one of ``sources``; ``leads`` is made leader. None and empty
    for none. It is never printed: :mod:`auditor.rules.resolution.resolve` compares the advices of a run by it.
    """

    away: int | None = None
    sources: tuple[int, ...] = ()
    leads: int | None = None


NOTHING_MOVES = Moves()


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about a finding.

    ``cost``: what acting, or waiting, loses, in a sentence; ``loses``: the same in numbers, which no text repeats;
    ``then``: what follows, or the advice itself if there is no command. Errors: ValueError for acts whose conditions
    are not known to hold, since no command that changes a cluster is printed then.
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
        """The advice as a row of ``findings.jsonl``."""
        return {name: value for name, value in self.carried().items() if name != "moves"}

    def carried(self) -> Fields:
        """:meth:`row` with the fields that are never printed, for :meth:`of` in another process."""
        return {**asdict(self), "verdict": self.verdict.value}

    @classmethod
    def of(cls, row: Values) -> Advice:
        """Restore an advice from :meth:`row` or :meth:`carried`."""
        moves = dict(row.get("moves") or {})
        return cls(
            Verdict(row["verdict"]),
            row["cost"],
            tuple(Condition(**item) for item in row["conditions"]),
            tuple(CheckCommand(**item) for item in row["look"]),
            tuple(Act(**item) for item in row["act"]),
            row["loses"],
            row["then"],
            Moves(moves["away"], tuple(moves["sources"]), moves["leads"]) if moves else NOTHING_MOVES,
        )

    def unless(self, *doubted: Condition) -> Advice:
        """The advice with these conditions added; its acts are dropped unless all of them are known to hold."""
        conditions = (*self.conditions, *doubted)
        if not self.act or all(condition.holds for condition in doubted):
            return replace(self, conditions=conditions)
        return replace(self, verdict=Verdict.LOOK, conditions=conditions, act=(), moves=NOTHING_MOVES)

    def worded(self, change: Callable[[str], str]) -> Advice:
        """The advice with ``change`` applied to every text that may hold a command."""
        return replace(
            self,
            look=tuple(replace(item, command=change(item.command)) for item in self.look),
            act=tuple(Act(change(item.command)) for item in self.act),
            then=change(self.then),
        )


_OLD_TONES = {"act": Verdict.ACT, "wait": Verdict.WAIT, "stop": Verdict.DO_NOT_ACT, "ask": Verdict.LOOK}


def whole(given: Values | None) -> Fields | None:
    """Complete an advice row that any release wrote; None for none.

    Releases before advices were objects stored a verdict in words, its tone, and its cost.
    """
    if not given:
        return None
    if "tone" not in given:
        return {**Advice(Verdict(given["verdict"])).row(), **given}
    words, cost = str(given.get("verdict") or ""), str(given.get("cost") or "")
    return Advice(_OLD_TONES.get(given["tone"], Verdict.LOOK), f"{words}. {cost}".strip(". ")).row()


Piece = tuple[str, str]  # "text" or "command", and its content


def lead(advice: Values) -> str:
    """The verdict and its cost: the first line of an advice, or the only one where a single line fits."""
    word = WORDS[Verdict(advice["verdict"])]
    return _sentence(f"{word}: {advice['cost']}" if advice["cost"] else word)


def pieces(advice: Values) -> list[Piece]:
    """An advice in reading order, starting with the verdict: sentences, and commands on lines of their own.

    An advice with only ``then`` is the same for all findings of a rule, and is printed without a verdict.
    """
    only_said = not any(advice[name] for name in ("cost", "conditions", "look", "act"))
    if only_said and advice["then"] and advice["verdict"] == Verdict.LOOK:
        return steps(advice)
    return [("text", lead(advice)), *steps(advice)]


def steps(advice: Values) -> list[Piece]:
    """The pieces of an advice without :func:`lead`."""
    return [*_conditions(advice), *_commands(advice), *_afterwards(advice)]


def text(advice: Values) -> str:
    """An advice on one line, as in ``remedy`` and for programs that print no line breaks."""
    return joined(pieces(advice))


def joined(parts: Iterable[Piece]) -> str:
    """Join pieces into one line; a semicolon ends a command, so that no following word is pasted with it."""
    out = ""
    for kind, words in parts:
        out += f"{' ' if out else ''}{words}{' ;' if kind == 'command' else ''}"
    return out.removesuffix(" ;")


def is_command(words: str) -> bool:
    """Whether a text is a command to paste as it is."""
    return words.startswith("kafka-")


def _conditions(advice: Values) -> Iterator[Piece]:
    for holds, word in ((True, "Known"), (False, "Not so"), (None, "Not known")):
        those = [
            f"{condition['what']} ({condition['by']})"
            for condition in advice["conditions"]
            if condition["holds"] is holds
        ]
        if those:
            yield "text", _sentence(f"{word}: {'; '.join(those)}")


def _commands(advice: Values) -> Iterator[Piece]:
    before = "Go on only if" if advice["verdict"] in (Verdict.LOOK, Verdict.ACT) else "This holds while"
    for item in advice["look"]:
        yield "command" if is_command(item["command"]) else "text", item["command"]
        if item["expect"]:
            yield "text", _sentence(f"{before} {item['expect']}")
    for item in advice["act"]:
        words = item["command"]
        yield ("command", words) if is_command(words) else ("text", _sentence(words))


def _afterwards(advice: Values) -> Iterator[Piece]:
    if advice["then"]:
        yield "text", _sentence(advice["then"])


def _sentence(words: str) -> str:
    begun = words[:1].upper() + words[1:] if words.split(" ")[0].rstrip(":,").isalpha() else words
    return begun if begun.endswith((".", "!", "?")) else f"{begun}."
