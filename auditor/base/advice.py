"""What to do about a finding, as an object: what must hold, what to look at, what to do, and what that loses.

Every text that people read of it is made here, once: no surface cuts a part out of another's sentence. Rules make
advices; in results, and for pages, one is a row (:meth:`Advice.row`), which is what the texts are made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What the advice comes to."""

    LOOK = "look"  # nothing may be done before something is known
    WAIT = "wait"  # it ends by itself
    ACT = "act"  # all conditions hold
    DO_NOT_ACT = "do_not_act"  # what suggests itself would lose data


WORDS = {
    Verdict.LOOK: "Look first", Verdict.WAIT: "Wait", Verdict.ACT: "Act", Verdict.DO_NOT_ACT: "Do not act",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """What must be so before anybody acts. ``holds``: None where the input does not show it, which is not "holds";
    ``by``: what shows it, or would."""

    what: str
    holds: bool | None
    by: str


@dataclass(frozen=True, slots=True)
class Look:
    """A command that changes nothing, and what it must show for what follows to be right."""

    command: str
    expect: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    """A command that changes something, or a step by hand; one that an operator carries out as it stands."""

    command: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about a finding.

    ``cost``: what acting, or waiting, takes away, in a sentence; ``loses``: the same in numbers; ``then``: what comes
    after, or what there is to say where there is no command. Errors: ValueError for acts whose conditions are not
    known to hold: nothing that changes a cluster is printed then.
    """

    verdict: Verdict
    cost: str = ""
    conditions: tuple[Condition, ...] = ()
    look: tuple[Look, ...] = ()
    act: tuple[Act, ...] = ()
    loses: str = ""
    then: str = ""

    def __post_init__(self) -> None:
        if self.act and (self.verdict is not Verdict.ACT or any(c.holds is not True for c in self.conditions)):
            raise ValueError(f"acts without conditions known to hold: {self.act}")

    def row(self) -> dict[str, Any]:
        """As ``findings.jsonl`` has it."""
        return {**asdict(self), "verdict": self.verdict.value}


Piece = tuple[str, str]  # "text" or "command", and what it says


def lead(advice: Mapping[str, Any]) -> str:
    """The verdict and its cost: what stands first on every surface, and alone where there is room for one line."""
    word = WORDS[Verdict(advice["verdict"])]
    return f"{word}: {advice['cost']}" if advice["cost"] else word


def pieces(advice: Mapping[str, Any]) -> list[Piece]:
    """An advice in reading order, from the verdict on: sentences, and commands that stand on lines of their own."""
    return [("text", _sentence(lead(advice))), *steps(advice)]


def steps(advice: Mapping[str, Any]) -> list[Piece]:
    """The same without :func:`lead`, for what stands below it."""
    return [*_conditions(advice), *_commands(advice), *_afterwards(advice)]


def text(advice: Mapping[str, Any]) -> str:
    """An advice on one line: what ``remedy`` is, and what programs print that know no lines."""
    out = ""
    for kind, said in pieces(advice):
        command = kind == "command"
        out += f"{' ' if out else ''}{said}{' ;' if command else ''}"
    return out.removesuffix(" ;")


def _conditions(advice: Mapping[str, Any]) -> Iterator[Piece]:
    for holds, word in ((True, "Known"), (False, "Not so"), (None, "Not known")):
        for each in advice["conditions"]:
            if each["holds"] is holds:
                yield "text", _sentence(f"{word}: {each['what']} ({each['by']})")


def _commands(advice: Mapping[str, Any]) -> Iterator[Piece]:
    for each in advice["look"]:
        yield "command", each["command"]
        if each["expect"]:
            yield "text", _sentence(f"Go on only if {each['expect']}")
    for each in advice["act"]:
        yield "command" if each["command"].startswith("kafka-") else "text", each["command"]


def _afterwards(advice: Mapping[str, Any]) -> Iterator[Piece]:
    if advice["loses"]:
        yield "text", _sentence(f"It loses {advice['loses']}")
    if advice["then"]:
        yield "text", _sentence(advice["then"])


def _sentence(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words}."
