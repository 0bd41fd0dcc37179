"""The page of one finding, whose address lasts: what it is, since when, in how many runs, what to do, who has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from auditor.base.at_rest import Values
from auditor.dashboards import for_owner, page, trend
from auditor.dashboards.addresses import Links
from auditor.dashboards.answers import Blocked
from auditor.dashboards.board import Cluster
from auditor.dashboards.overview import Step
from auditor.dashboards.wording import SEVERITIES, Finding, fact, log_name, short_fingerprint

SECTIONS = ("Checks", "Why it matters", "Can be wrong", "Source")


@dataclass(frozen=True, slots=True)
class Story:
    """A finding over the runs of its cluster.

    ``row``: as the last run that has it has it; ``held``: the partition that it holds, where it does. ``seen``: each
    run from the first one that has it to the one that says how it stands now, with its severity there, None where it
    was not there. ``whole``: whether all kept runs were looked into. ``entry``: of the baseline of its last run,
    ``over`` why it does not count any more. ``rule``: title and sections of its rule's page, empty for one of the past.
    ``unlooked``: why the last of ``seen``, which does not have it, does not say that it is gone.
    """

    cluster: Cluster
    row: Finding
    held: Blocked | None
    seen: Sequence[tuple[Step, str | None]]
    whole: bool
    entry: Values | None
    rule: Mapping[str, str]
    unlooked: str = ""

    @property
    def there(self) -> list[Step]:
        """The runs that have it."""
        return [step for step, severity in self.seen if severity is not None]

    @property
    def gone(self) -> Step | None:
        """The run that does not have it any more; None while it is there."""
        last, severity = self.seen[-1]
        return last if severity is None else None

    @property
    def accepted(self) -> bool:
        """Whether the baseline accepts it."""
        return self.entry is not None and self.entry["over"] is None

    @property
    def state(self) -> tuple[str, str]:
        """How it stands now: a colour, and words."""
        if self.gone is not None:
            return ("unsure", "not looked for in the latest run") if self.unlooked else ("good", "gone")
        return ("info", "accepted") if self.accepted else (self.row["severity"], "there in the latest run")

    @property
    def title(self) -> str:
        """What it is called."""
        return f"{log_name(self.row) or 'The cluster'}: {self.rule.get('Title') or self.row['rule']}"


def render_finding(story: Story, links: Links, as_of: str | None) -> str:
    """The page; ``as_of``: the time that its last run judged by."""
    row, holder = story.row, story.held.holder if story.held else None
    facts = [(name, fact(name, said)) for name, said in sorted((row["evidence"] or {}).items()) if said is not None]
    counts = {name: [int(found == name) for _, found in story.seen] for name in SEVERITIES}
    steps = [step for step, _ in story.seen]
    seen = {name: values for name, values in counts.items() if any(values)}
    return page.render(
        "finding_page.html.j2",
        story=story,
        row=row,
        held=story.held,
        links=links,
        as_of=as_of,
        facts=facts,
        sections=SECTIONS,
        tone=story.state[0] if story.gone else "unsure" if story.accepted else _TONES[row["severity"]],
        trend=trend.draw(steps, [step.at for step in steps], seen),
        digits=short_fingerprint(row),
        message=for_owner.message(row, holder, story.cluster.name),
    )


_TONES = {"critical": "bad", "error": "bad", "warning": "warn", "info": "unsure"}
