"""Mutated log directories through the whole audit: settings, checkpoints, internal topics and segments together.

Seeds are brokers of the corpora, cut to what is small. A mutant is its number: some files changed as :mod:`mutate`
changes them, some gone, some in another's place. It is audited in this process, up to the report, now and then as a
what-if too. Whatever its files say, the audit must end in results that account for every byte.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from auditor.base.errors import DEFAULT_LIMITS, MIB, AuditInputError
from auditor.outputs.publish import publish, publish_what_if
from auditor.pipeline.what_if_audit import WhatIfAudit
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.facts import opened
from tests.fuzz import mutate, seeds

LARGEST = 96 << 10  # bytes of a seed, and of a file in it
WHAT_IFS = 8  # one mutant in so many is a what-if too
LIMITS = DEFAULT_LIMITS._replace(max_batch_bytes=16 * MIB)
INTERNAL = ("__transaction_state", "__consumer_offsets", "__cluster_metadata")

Tree = dict[str, bytes]  # content of each file by its path


@functools.cache
def trees() -> list[Tree]:
    """The seeds: of each corpus its settings, its checkpoints, and the smallest partitions."""
    found = [_small(corpora.unpack(name)) for name in (*corpora.names(), "aiven-43")]
    return [tree for tree in found if any(name.endswith(".log") for name in tree)]


def _small(root: Path) -> Tree:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    folders: dict[Path, list[Path]] = {}
    for path in files:
        folders.setdefault(path.parent, []).append(path)
    tree: Tree = {}

    def size_of(folder: Path) -> tuple[bool, int]:
        is_partition = any(path.suffix == ".log" for path in folders[folder])
        return is_partition, sum(path.stat().st_size for path in folders[folder])

    taken: dict[bool, int] = {}
    for folder in sorted(folders, key=lambda f: (*size_of(f), str(f))):
        internal = folder.name.rpartition("-")[0] in INTERNAL
        room = LARGEST - taken.get(internal, 0)
        if size_of(folder)[1] <= room:
            taken[internal] = taken.get(internal, 0) + size_of(folder)[1]
            tree |= {path.relative_to(root).as_posix(): path.read_bytes() for path in folders[folder]}
    return tree


def kind_of(name: str) -> str:
    """The kind of :mod:`mutate` that a file is."""
    path = Path(name)
    kinds = {".log": "segment", ".checkpoint": "segment", ".properties": "server.properties"}
    return path.name if path.name in seeds.SMALL_FILES else kinds.get(path.suffix, path.suffix.removeprefix("."))


def mutant(seed: int, number: int) -> Tree:
    """Mutant ``number``."""
    random_ = random.Random(seed << 40 | number)
    tree = dict(random_.choice(trees()))
    for step in range(random_.choice((1, 2, 3, 5, 12))):
        names = sorted(tree)
        name, other = random_.choice(names), random_.choice(names)
        match random_.randrange(12):
            case 0:
                del tree[name]
            case 1:
                tree[name] = tree[other]
            case 2:
                tree[name], tree[other] = tree[other], tree[name]
            case 3:
                place = Path(name).parent.as_posix()
                tree[f"{place}{random_.choice(('0', '-1', '9', '.x-delete', '-stray'))}/{Path(name).name}"] = tree[name]
            case _:
                tree[name] = mutate.mutated(kind_of(name), [tree[name]], seed, number * 16 + step)
        if not tree:
            break
    return tree


def write(tree: Tree, root: Path) -> None:
    """The files of a mutant below a folder; a name that is a folder already is left out."""
    for name, data in tree.items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            continue


def audited(root: Path, out: Path, number: int) -> None:
    """Audits a folder up to the report; what must be so of any input is asserted."""
    as_of = (None, 0, 1 << 62, 1_800_000_000_000)[number % 4]
    options = {"records": number % 2 == 0, "as_of": as_of, "limits": LIMITS}
    audit = opened(root, **options)
    with contextlib.suppress(AuditInputError):  # nothing to audit
        publish(audit, out)
        accounted(audit)
    if number % WHAT_IFS == 0:
        shutil.rmtree(out)
        out.mkdir()
        with contextlib.suppress(AuditInputError):
            publish_what_if(WhatIfAudit(replace(audit.options, records=False), audit.runner), out)


def accounted(audit: Audit) -> None:
    for f in audit.findings:
        json.loads(f.to_json())
    assert audit.exit_code() in (0, 1, 3)
    for row in audit.judged["log"]:
        sums = row["sums"]
        parts = [sums[name] for name in ("bytes_decoded", "bytes_skipped", "bytes_error")]
        assert min(parts) >= 0, sums
        assert sum(parts) == sums["bytes_total"], sums


def run_one(seed: int, number: int, save: Path | None = None) -> None:
    """One mutant through the whole way; see :func:`audit_tree`."""
    audit_tree(mutant(seed, number), number, save)


def audit_tree(tree: Tree, number: int, save: Path | None = None) -> None:
    """Files through the whole way; ``save``: a folder that they are written to and stay in. ``number`` chooses the
    options."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        root, out = save or Path(folder, "in"), Path(folder, "out")
        root.mkdir(exist_ok=True)
        out.mkdir()
        write(tree, root)
        audited(root, out, number)
