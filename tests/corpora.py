"""Real brokers' log directories with their ground truth: where they are and how a test gets at the files.

Each folder of ``tests/data/corpora`` holds ``manifest.json`` and either ``data.tar.gz``, mostly with ``oracle/`` beside
it, or (text only) ``texts/``. See ``tests/data/corpora/README.md`` for what the manifests say.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent / "data" / "corpora"
CAMPAIGNS = Path(__file__).parent / "data" / "campaigns"
FORMATS = Path(__file__).parent / "data" / "formats"
CONFORMANCE = Path(__file__).parent / "data" / "conformance"
INCIDENTS = Path(__file__).parent / "data" / "incidents"


def names(*, text: bool = False) -> list[str]:
    """The log directories with what Kafka's tools said of every file, sorted; with ``text``, those of texts only."""
    wanted = "texts" if text else "oracle"
    return sorted(path.parent.name for path in ROOT.glob(f"*/{wanted}"))


def judged() -> list[str]:
    """All that are log directories, sorted: also those of which the manifest alone shows what an audit has to find."""
    return sorted(path.parent.name for path in ROOT.glob("*/data.tar.gz"))


def campaigns() -> list[str]:
    """The small histories that ``tests/broker/campaigns.py`` froze: like corpora, but without ``oracle/``."""
    return sorted(path.parent.name for path in CAMPAIGNS.glob("*/data.tar.gz"))


def incidents() -> list[str]:
    """The forged directories, each with what an audit has to find in ``expect.json``; ``unpack`` has all of them."""
    found: list[str] = json.loads((INCIDENTS / "names.json").read_text(encoding="utf-8"))
    return found


def _folder(name: str) -> Path:
    if name == INCIDENTS.name:
        return INCIDENTS
    return next((root / name for root in (ROOT, CAMPAIGNS) if (root / name).is_dir()), FORMATS / name)


@functools.cache
def manifest(name: str) -> dict[str, Any]:
    """The ground truth of a corpus. Shared between callers: do not change it."""
    content: dict[str, Any] = json.loads((_folder(name) / "manifest.json").read_text(encoding="utf-8"))
    return content


@functools.cache
def rule_ids() -> dict[str, Any]:
    """Which rule ids answer each finding name of the manifests."""
    content: dict[str, Any] = json.loads((ROOT / "rules.json").read_text(encoding="utf-8"))
    return content


@functools.cache
def true_too(name: str) -> frozenset[str]:
    """Rules that may say something of a corpus besides: true of how it was made, and not expected of it."""
    content = json.loads((ROOT / "judged.json").read_text(encoding="utf-8"))
    return frozenset(content["true_too"].get(name, ()))


@functools.cache
def unknowable(name: str) -> frozenset[str]:
    """What a manifest expects at info that the files need not show: an info is enough, or nothing."""
    content = json.loads((ROOT / "judged.json").read_text(encoding="utf-8"))
    return frozenset(content["unknowable"].get(name, ()))


def oracle(name: str) -> Path:
    """The folder with what Kafka's own tools said of a corpus."""
    return ROOT / name / ("oracle" if (ROOT / name / "oracle").is_dir() else "texts")


def archive(name: str) -> Path:
    """The packed log directories of a corpus."""
    return _folder(name) / "data.tar.gz"


@functools.cache
def unpack(name: str) -> Path:
    """The folder a corpus is unpacked in (it holds ``broker-N/``). Shared by all tests of this user: never write to it.

    Unpacked once for each content of the archive, into a private folder under the system's temporary one; a second
    process doing the same at the same time is harmless, since the folder gets its name only when it is whole.
    """
    file = archive(name)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    target = _cache() / f"{name}-{digest}"
    if target.is_dir():
        return target
    staging = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=_cache()))
    try:
        with tarfile.open(file) as tar:
            tar.extractall(staging, filter="data")
        _claim(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def copy(name: str, target: Path) -> Path:
    """A corpus unpacked into ``target``, for a test that alters its files. Returns ``target``."""
    shutil.copytree(unpack(name), target, dirs_exist_ok=True)
    return target


def _claim(staging: Path, target: Path) -> None:
    """Give a whole folder its name; whoever comes second keeps what the first one made."""
    try:
        staging.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _cache() -> Path:
    """This user's own folder: nobody else may have put something there before us."""
    shared = os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir()  # tests/conftest.py sets it
    folder = Path(shared) / f"kafka-log-auditor-corpora-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user; set TMPDIR to a folder of your own")
    return folder
