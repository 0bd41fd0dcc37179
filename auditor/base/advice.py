"""Advice on a finding as an object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from auditor.base.at_rest import Fields, Values

# Rules create advices; results and pages contain them as rows (:meth:`Advice.row`). All texts about an advice are
# rendered from its row here, so that no output cuts a sentence of another one.


class Verdict(StrEnum):
    """The label of an advice (contract, section 0)."""

    SAFE_TO_ABORT = "safe_to_abort"
    DO_NOT_ABORT = "do_not_abort"  # an abort may lose data
    COMMIT_IT = "commit_it"  # the COMMIT marker of a committed transaction is missing: an abort loses its records
    INVESTIGATE_FIRST = "investigate_first"  # check the conditions before any step
    WAIT = "wait"  # it ends by itself
    NOTIFY_OWNER = "notify_owner"  # only the owner of the application can act
    ACT = "act"  # all conditions are met
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
NOW = (Verdict.SAFE_TO_ABORT, Verdict.COMMIT_IT, Verdict.ACT)  # labels of an advice whose steps may be taken now


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the steps of an advice.

    ``holds``: None if the input does not show it, which does not count as met. ``command``: a read-only command that
    shows it now; ``expect``: what its output must contain.
    """

    what: str
    holds: bool | None = None
    command: str = ""
    expect: str = ""


def shown(what: str, holds: bool | None, by: str) -> Condition:
    """Return a condition that the input confirms, rules out or leaves open; ``by``: the evidence."""
    return Condition(f"{what} ({by})", holds)


def check(command: str, expect: str) -> Condition:
    """Return a condition that a command shows; ``expect``: what the output must contain."""
    return Condition(expect, None, command, expect)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of an operator: a sentence, a command that changes something, or both; ``expect``: its output."""

    do: str
    command: str = ""
    expect: str = ""


@dataclass(frozen=True, slots=True)
class Moves:
    """Changes of an advice to the replicas of its partition, by broker.

    ``away`` loses its directory and is fetched again from one of ``sources``; ``leads`` is made leader. None and empty
    for none. Never printed: :mod:`auditor.rules.resolution.resolve` uses it to find advices that contradict each other.
    """

    away: int | None = None
    sources: tuple[int, ...] = ()
    leads: int | None = None


NOTHING_MOVES = Moves()


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice on a finding.

    ``why``: the reason for the verdict in a sentence; ``side_effects``: the cost of the steps, or of waiting, in
    numbers; ``afterwards``: further sentences, or the advice itself if it has no step. Errors: ValueError for steps
    that may be taken now although a condition is unconfirmed and no command shows it. Exception: a COMMIT marker,
    for which no tool of Kafka has a command.
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
        """Return whether it has steps that may be taken now."""
        return bool(self.steps) and self.verdict in NOW

    @property
    def checks(self) -> tuple[Condition, ...]:
        """Return the conditions that a command shows."""
        return tuple(condition for condition in self.conditions if condition.command)

    def row(self) -> Fields:
        """Return the advice as a row of ``findings.jsonl``."""
        return {name: value for name, value in self.carried().items() if name != "moves"}

    def carried(self) -> Fields:
        """Return :meth:`row` with the fields that are never printed, for :meth:`of` in another process."""
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
        """Return the advice with these conditions added; its steps wait until all of them are confirmed."""
        conditions = (*self.conditions, *doubted)
        if not self.acts or all(condition.holds for condition in doubted):
            return replace(self, conditions=conditions)
        doubted_verdict = Verdict.DO_NOT_ABORT if self.verdict is Verdict.COMMIT_IT else Verdict.INVESTIGATE_FIRST
        return replace(self, verdict=doubted_verdict, conditions=conditions)

    def also(self, *checks: Condition) -> Advice:
        """Return the advice with these checks before its own."""
        known = tuple(condition for condition in self.conditions if not condition.command)
        return replace(self, conditions=(*known, *checks, *self.checks))

    def worded(self, change: Callable[[str], str]) -> Advice:
        """Return the advice with ``change`` applied to every text that may contain a command."""
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
    """Return a step from a sentence or from a command."""
    return Step("", words) if is_command(words) else Step(words)


Piece = tuple[str, str]  # "text" or "command", and its content
CHECK, RUN = LABELS = ("text", "Check:"), ("text", "Run:")


def lead(advice: Values) -> str:
    """Return the verdict and its reason: the first line of an advice, or the only one if a single line fits."""
    word, why = WORDS[Verdict(advice["verdict"])], advice["why"]
    word += ", do not abort" if advice["verdict"] == Verdict.COMMIT_IT else ""
    if advice["verdict"] == Verdict.SAFE_TO_ABORT and why:
        return f"{word}. {_sentence(why)}"
    return _sentence(f"{word}: {why}" if why else word)


def pieces(advice: Values) -> list[Piece]:
    """Return an advice in reading order, starting with the verdict: sentences, and commands on lines of their own.

    An advice with only ``afterwards`` is the same for all findings of a rule, and is printed without a verdict.
    """
    only_said = not any(advice[name] for name in ("why", "conditions", "steps", "side_effects"))
    if only_said and advice["afterwards"] and advice["verdict"] == Verdict.INVESTIGATE_FIRST:
        return below(advice)
    return [("text", lead(advice)), *below(advice)]


def below(advice: Values) -> list[Piece]:
    """Return the pieces of an advice without :func:`lead`."""
    effects = [("text", _sentence(f"Side effects: {advice['side_effects']}"))] if advice["side_effects"] else []
    rest = [("text", _sentence(advice["afterwards"]))] if advice["afterwards"] else []
    parts: list[Piece] = []
    for piece in [*_conditions(advice), *_steps(advice), *effects, *rest]:
        if piece in LABELS and parts and parts[-1][0] == "text":  # on the same line: a screen has few
            parts[-1] = "text", f"{parts[-1][1]} {piece[1]}"
        else:
            parts.append(piece)
    return parts


def text(advice: Values) -> str:
    """Return an advice on one line, as in ``remedy`` and for programs that print no line breaks."""
    return joined(pieces(advice))


def joined(parts: Iterable[Piece]) -> str:
    """Join pieces into one line; a semicolon ends a command, so that no following word is pasted with it."""
    out = ""
    for kind, words in parts:
        out += f"{' ' if out else ''}{words}{' ;' if kind == 'command' else ''}"
    return out.removesuffix(" ;")


def is_command(words: str) -> bool:
    """Return whether a text is a command to paste as it is."""
    return words.startswith("kafka-")


def _conditions(advice: Values) -> Iterator[Piece]:
    for holds, word in ((True, "Confirmed"), (False, "Ruled out"), (None, "Unconfirmed")):
        those = [item["what"] for item in advice["conditions"] if item["holds"] is holds and not item["command"]]
        if those:
            yield "text", _sentence(f"{word}: {'; '.join(those)}")
    before = "Confirms the finding if" if advice["verdict"] in CONFIRMED_BY_CHECKS else "Continue only if"
    if any(item["command"] for item in advice["conditions"]):
        yield CHECK
    for item in advice["conditions"]:
        if item["command"]:
            yield "command" if is_command(item["command"]) else "text", item["command"]
            yield "text", _sentence(f"{before} {item['expect']}")


CONFIRMED_BY_CHECKS = (Verdict.WAIT, Verdict.DO_NOT_ABORT, Verdict.NOTIFY_OWNER, Verdict.NONE)


def _steps(advice: Values) -> Iterator[Piece]:
    waits = any(item["command"] or item["holds"] is not True for item in advice["conditions"])
    if advice["steps"] and waits and advice["verdict"] not in NOW:
        yield "text", "Take these steps only after all conditions are confirmed."
    for item in advice["steps"]:
        if item["do"]:
            yield "text", _sentence(item["do"])
        elif item["command"]:
            yield RUN
        if item["command"]:
            yield "command", item["command"]
        if item["expect"]:
            yield "text", _sentence(f"The output shows {item['expect']}")


def _sentence(words: str) -> str:
    begun = words[:1].upper() + words[1:] if words.split(" ")[0].rstrip(":,").isalpha() else words
    return begun if begun.endswith((".", "!", "?", ":")) else f"{begun}."
