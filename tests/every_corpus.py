"""Every corpus there is in one audit, for what has to be the same however an audit runs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auditor.commands.demo import DEMO
from auditor.pipeline.options import AuditOptions
from tests import corpora
from tests.conftest import NIGHTLY

NAMES = (*corpora.judged(), *corpora.campaigns())
BY_DAY = NAMES if NIGHTLY else NAMES[::3]  # where another test has all of them
TEXTS = corpora.ROOT / "text-dumps" / "texts"
AS_OF = max(corpora.manifest(name)["copied_at"] for name in NAMES)  # no corpus is from the future


def paths(target: Path, names: Sequence[str] = NAMES) -> tuple[str, ...]:
    """Corpora, the folders of text dumps and the demo. The corpora are copied into ``target``, where each is a
    cluster of its own: many come from one cluster id, and would be judged as replicas of each other."""
    for name in names:
        for file in corpora.copy(name, target / name).glob("*/meta.properties"):
            text = file.read_text(encoding="utf-8")
            file.write_text(re.sub("^cluster.id=.*$", f"cluster.id={name}", text, flags=re.M), encoding="utf-8")
    folders = [target / name for name in names] + [path for path in sorted(TEXTS.iterdir()) if path.is_dir()]
    return tuple(map(str, [*folders, DEMO / "logs"]))


def options(found: tuple[str, ...], out: Path, master: str | None = None) -> AuditOptions:
    """An audit of :func:`paths` with everything but the tables."""
    return AuditOptions(found, out, records=True, as_of=AS_OF, master=master)


def results(out: Path) -> dict[str, Any]:
    """What an audit said, but for when and how long it ran: the lines of its findings, its summary, what it drew."""
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    del summary["timings"], summary["ran"]
    drawn = re.findall("<svg.*?</svg>", (out / "report.html").read_text(encoding="utf-8"), flags=re.DOTALL)
    return {"findings": (out / "findings.jsonl").read_bytes().splitlines(), "summary": summary, "drawn": drawn}
