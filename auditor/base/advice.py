"""Advice on a finding as an object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from auditor.base.at_rest import Fields, Values

# Rules create advices; results and pages have them as rows (:meth:`Advice.row`). All texts about an advice are rendered
# from its row here, so that no output cuts a part out of another's sentence.


class Verdict(StrEnum):
    """The label of an advice (contract, section 0)."""

    SAFE_TO_ABORT = "safe_to_abort"
    DO_NOT_ABORT = "do_not_abort"  # an abort may lose data
    COMMIT_IT = "commit_it"  # COMMIT was decided and its marker is missing: an abort loses what was committed
    INVESTIGATE_FIRST = "investigate_first"  # more must be known before anything is done
    WAIT = "wait"  # it ends by itself
    NOTIFY_OWNER = "notify_owner"  # only the owner of the application can do anything
    ACT = "act"  # all conditions hold
    NONE = "none"


WORDS = {
    Verdict.SAFE_TO_ABORT: "Safe to abort",
    Verdict.DO_NOT_ABORT: "Do not abort",
    Verdict.COMMIT_IT: "Commit it",
    Verdict.INVESTIGATE_FIRST: "Investigate first",
    Verdict.WAIT: "Wait",
    Verdict.NOTIFY_OWNER: "Notify owner",
    Verdict.ACT: "Act",
    Verdict.NONE: "Nothing to do",
}
NOW = (Verdict.SAFE_TO_ABORT, Verdict.COMMIT_IT, Verdict.ACT)  # the steps may be taken now


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold before anyone acts.

    ``holds``: None if the input does not show it, which is not "holds". ``command``: shows it now, and changes nothing;
    ``expect``: what its output must contain.
    """

    what: str
    holds: bool | None = None
    command: str = ""
    expect: str = ""


def shown(what: str, holds: bool | None, by: str) -> Condition:
    """A condition that the input decides, or leaves open; ``by``: what shows it, or would show it."""
    return Condition(f"{what} ({by})", holds)


def check(command: str, expect: str) -> Condition:
    """A condition that a command shows, as the finding says it; ``expect``: what the output must contain."""
    return Condition(expect, None, command, expect)


@dataclass(frozen=True, slots=True)
class Step:
    """What an operator does: a sentence, a command that changes something, or both; ``expect``: what it then shows."""

    do: str
    command: str = ""
    expect: str = ""


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

    ``why``: the reason for the verdict in a sentence; ``side_effects``: what the steps, or waiting, cost in numbers;
    ``afterwards``: what follows, or the advice itself if there is no step. Errors: ValueError for steps that may be
    taken now although a condition is not known to hold and no command shows it; a COMMIT marker is written by no tool.
    """

    verdict: Verdict
    why: str = ""
    conditions: tuple[Condition, ...] = ()
    steps: tuple[Step, ...] = ()
    side_effects: str = ""
    afterwards: str = ""
    moves: Moves = field(default=NOTHING_MOVES)

    def __post_init__(self) -> None:
        unknown = [c.what for c in self.conditions if c.holds is not True and not c.command]
        by_hand = self.verdict is Verdict.COMMIT_IT and not any(step.command for step in self.steps)
        if self.acts and unknown and not by_hand:
            raise ValueError(f"steps without conditions known to hold: {self.steps}, {unknown}")

    @property
    def acts(self) -> bool:
        """Whether it has steps that may be taken now."""
        return bool(self.steps) and self.verdict in NOW

    @property
    def checks(self) -> tuple[Condition, ...]:
        """The conditions that a command shows."""
        return tuple(condition for condition in self.conditions if condition.command)

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
            row["why"],
            tuple(Condition(**item) for item in row["conditions"]),
            tuple(Step(**item) for item in row["steps"]),
            row["side_effects"],
            row["afterwards"],
            Moves(moves["away"], tuple(moves["sources"]), moves["leads"]) if moves else NOTHING_MOVES,
        )

    def unless(self, *doubted: Condition) -> Advice:
        """The advice with these conditions added; its steps wait until all of them are known to hold."""
        conditions = (*self.conditions, *doubted)
        if not self.acts or all(condition.holds for condition in doubted):
            return replace(self, conditions=conditions)
        doubted_verdict = Verdict.DO_NOT_ABORT if self.verdict is Verdict.COMMIT_IT else Verdict.INVESTIGATE_FIRST
        return replace(self, verdict=doubted_verdict, conditions=conditions)

    def also(self, *checks: Condition) -> Advice:
        """The advice with these checks before its own."""
        known = tuple(condition for condition in self.conditions if not condition.command)
        return replace(self, conditions=(*known, *checks, *self.checks))

    def worded(self, change: Callable[[str], str]) -> Advice:
        """The advice with ``change`` applied to every text that may hold a command."""
        return replace(
            self,
            conditions=tuple(replace(item, command=change(item.command)) for item in self.conditions),
            steps=tuple(replace(item, do=change(item.do), command=change(item.command)) for item in self.steps),
            afterwards=change(self.afterwards),
        )


_OLD = {"act": Verdict.ACT, "wait": Verdict.WAIT, "look": Verdict.INVESTIGATE_FIRST, "ask": Verdict.INVESTIGATE_FIRST}


def whole(given: Values | None) -> Fields | None:
    """Complete an advice row that any release wrote; None for none.

    The first releases stored a verdict in words, its tone, and its cost; later ones an object with other names.
    """
    if not given:
        return None
    cost = str(given.get("cost") or "")
    if "tone" in given:
        words = str(given.get("verdict") or "")
        return Advice(_OLD.get(given["tone"], Verdict.DO_NOT_ABORT), f"{words}. {cost}".strip(". ")).row()
    if "cost" not in given:
        return {**Advice(Verdict(given["verdict"])).row(), **given}
    return Advice(
        _OLD.get(given["verdict"], Verdict.DO_NOT_ABORT),
        cost,
        (
            *(shown(c["what"], c["holds"], c["by"]) for c in given.get("conditions") or ()),
            *(check(c["command"], c["expect"]) for c in given.get("look") or ()),
        ),
        tuple(step(a["command"]) for a in given.get("act") or ()),
        str(given.get("loses") or ""),
        str(given.get("then") or ""),
    ).row()


def step(words: str) -> Step:
    """A step from a sentence or from a command."""
    return Step("", words) if is_command(words) else Step(words)


Piece = tuple[str, str]  # "text" or "command", and its content


def lead(advice: Values) -> str:
    """The verdict and its reason: the first line of an advice, or the only one where a single line fits."""
    word = WORDS[Verdict(advice["verdict"])] + (", do not abort" if advice["verdict"] == Verdict.COMMIT_IT else "")
    return _sentence(f"{word}: {advice['why']}" if advice["why"] else word)


def pieces(advice: Values) -> list[Piece]:
    """An advice in reading order, starting with the verdict: sentences, and commands on lines of their own.

    An advice with only ``afterwards`` is the same for all findings of a rule, and is printed without a verdict.
    """
    only_said = not any(advice[name] for name in ("why", "conditions", "steps", "side_effects"))
    if only_said and advice["afterwards"] and advice["verdict"] == Verdict.INVESTIGATE_FIRST:
        return below(advice)
    return [("text", lead(advice)), *below(advice)]


def below(advice: Values) -> list[Piece]:
    """The pieces of an advice without :func:`lead`."""
    effects = [("text", _sentence(f"Side effects: {advice['side_effects']}"))] if advice["side_effects"] else []
    rest = [("text", _sentence(advice["afterwards"]))] if advice["afterwards"] else []
    return [*_conditions(advice), *_steps(advice), *effects, *rest]


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
        those = [item["what"] for item in advice["conditions"] if item["holds"] is holds and not item["command"]]
        if those:
            yield "text", _sentence(f"{word}: {'; '.join(those)}")
    before = "This holds while" if advice["verdict"] in HOLDS_WHILE else "Go on only if"
    for item in advice["conditions"]:
        if item["command"]:
            yield "command" if is_command(item["command"]) else "text", item["command"]
            yield "text", _sentence(f"{before} {item['expect']}")


HOLDS_WHILE = (Verdict.WAIT, Verdict.DO_NOT_ABORT, Verdict.COMMIT_IT, Verdict.NOTIFY_OWNER, Verdict.NONE)


def _steps(advice: Values) -> Iterator[Piece]:
    waits = any(item["command"] or item["holds"] is not True for item in advice["conditions"])
    if advice["steps"] and waits and advice["verdict"] not in NOW:
        yield "text", "Take these steps only once all of this holds."
    for item in advice["steps"]:
        if item["do"]:
            yield "text", _sentence(item["do"])
        if item["command"]:
            yield "command", item["command"]
        if item["expect"]:
            yield "text", _sentence(f"It shows {item['expect']}")


def _sentence(words: str) -> str:
    begun = words[:1].upper() + words[1:] if words.split(" ")[0].rstrip(":,").isalpha() else words
    return begun if begun.endswith((".", "!", "?", ":")) else f"{begun}."
