"""The pictures of docs/performance.md: time and memory over how many there are, with Matplotlib, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from auditor.base.errors import AuditInputError
from bench.sides import ROOT

FOLDER = ROOT / "docs" / "growth"
PROCESSES = {"driver": "o-", "worker": "s--", "JVM": "^:"}  # their lines
SIGNS = {"o-": "(solid)", "s--": "(dashed)", "^:": "(dotted)"}
SIZE = (9.6, 4.0)  # inches
STYLE = {
    "svg.hashsalt": "auditor",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.grid": True,
    "grid.alpha": 0.3,
}


class Point(NamedTuple):
    """One audit: what was in it and how many, the way to run, seconds on a quiet machine, those of processor time of
    the driver, the most MiB of anonymous memory that one process of each kind had."""

    kind: str
    count: int
    master: str
    seconds: float
    cpu: float
    memory: dict[str, int]

    def line(self) -> str:
        """For the terminal."""
        memory = ", ".join(f"{name} {mib} MiB" for name, mib in self.memory.items())
        taken = f"{self.seconds:.1f} s, {self.cpu:.1f} of the driver's CPU"
        return f"{self.count:,} {self.kind}, {self.master}: {taken}, {memory}"


def require() -> None:
    """Errors: :class:`AuditInputError` where Matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise AuditInputError("no Matplotlib to draw with; 'make bench' installs it") from error


def draw(name: str, counted: str, points: Sequence[Point], folder: Path = FOLDER) -> Path:
    """One picture, NAME.svg: seconds on the left and memory on the right over how many there are, both logarithmic; a
    line per kind and way to run. ``counted``: what the axis counts. Where lines rise like the grey one, twice as many
    take twice as much."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE):  # the same input gives the same bytes
        figure, (left, right) = pyplot.subplots(1, 2, figsize=SIZE, layout="constrained")
        for number, label in enumerate(dict.fromkeys(_label(one) for one in points)):
            series = sorted((one for one in points if _label(one) == label), key=lambda one: one.count)
            counts, colour = [one.count for one in series], f"C{number}"
            left.plot(counts, [one.seconds for one in series], "o-", color=colour, label=label, markersize=3)
            for process, line in PROCESSES.items():
                most = [one.memory.get(process, 0) for one in series]
                if any(most):
                    right.plot(counts, [max(mib, 1) for mib in most], line, color=colour, markersize=3)
        _axes(left, counted, "seconds")
        _axes(right, counted, "MiB of one process: " + ", ".join(f"{p} {SIGNS[s]}" for p, s in PROCESSES.items()))
        left.legend(fontsize=7)
        _guide(left, points)
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{name}.svg"
        figure.savefig(target, metadata={"Date": None})
        pyplot.close(figure)
    return target


def _label(one: Point) -> str:
    return f"{one.kind}, {one.master}"


def _axes(axes: Any, counted: str, what: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel=counted, title=what)
    axes.title.set_fontsize(8)


def _guide(axes: Any, points: Sequence[Point]) -> None:
    """A grey line along which time is proportional, through the largest measurement."""
    most = max(points, key=lambda one: (one.seconds, one.count))
    counts = [min(one.count for one in points), most.count]
    axes.plot(counts, [most.seconds * count / most.count for count in counts], color="0.7", zorder=0)
    axes.set_ylim(bottom=min(one.seconds for one in points) / 2)
