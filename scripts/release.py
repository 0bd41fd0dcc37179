"""Make the files of a release in ``dist/``: wheel, sdist, archives for hosts without network, SBOM and checksums.

    python scripts/release.py [--wheel]

``--wheel`` makes only the wheel and the same file as ``.zip``, which ``spark-submit --py-files`` needs. Archives are
made for each machine type of ``scripts/bundle.py`` and each Python for which all locked packages have wheels; the
others are reported and skipped.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import sbom
from bundle import MACHINES, bundle

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
CHECKSUMS = "SHA256SUMS"


def build(target: str) -> None:
    """Build ``wheel`` or ``sdist`` into ``dist/``."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(DIST)], cwd=ROOT, check=True)


def archives() -> list[str]:
    """Make an archive per machine type and Python; the names of those that cannot be made."""
    skipped = []
    for machine in MACHINES:
        for version in PYTHONS:
            try:
                bundle(DIST, version, machine)
            except subprocess.CalledProcessError:
                skipped.append(f"{machine} with Python {version}")
    return skipped


def checksums() -> None:
    """Write the SHA-256 of each file in the form that ``sha256sum --check`` reads."""
    files = sorted(path for path in DIST.iterdir() if path.name != CHECKSUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def main(only_wheel: bool) -> int:
    """Make the files; exit code 1 if no archive could be made."""
    shutil.rmtree(DIST, ignore_errors=True)
    build("wheel")
    for wheel in DIST.glob("*.whl"):
        shutil.copy(wheel, wheel.with_suffix(".zip"))
    skipped: list[str] = []
    if not only_wheel:
        build("sdist")
        skipped = archives()
        sbom.main(str(ROOT / "requirements.lock"), str(ROOT / "docs" / "licenses.md"), str(DIST / "sbom.json"))
    checksums()
    for path in sorted(DIST.iterdir()):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    for name in skipped:
        why = "a locked package has no wheel, or the index cannot be reached"
        print(f"release: no archive for {name}: {why}", file=sys.stderr)
    return int(len(skipped) == len(MACHINES) * len(PYTHONS))


if __name__ == "__main__":
    sys.exit(main("--wheel" in sys.argv[1:]))
