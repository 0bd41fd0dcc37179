"""What this project brings along: ``docs/licenses.md`` for people and a CycloneDX file for tools, made offline.

    python scripts/sbom.py requirements.lock docs/licenses.md dist/sbom.json

Names, versions and hashes are the lock's; licences are what the installed packages say of themselves.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

ELSEWHERE = "not installed where this list was made"
_PIN = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;\\]+)(?: *; *([^\\\n]+))?", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Package(NamedTuple):
    """A pinned package; ``marker`` says where it is installed, empty for everywhere."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def pinned(lock: str) -> list[Package]:
    """The packages of a lock file's text, by name."""
    pins = list(_PIN.finditer(lock))
    ends = [pin.start() for pin in pins[1:]] + [len(lock)]
    found = [
        Package(pin[1], pin[2], (pin[3] or "").strip(), tuple(_HASH.findall(lock, pin.end(), end)))
        for pin, end in zip(pins, ends, strict=True)
    ]
    return sorted(found)


def licence(package: Package) -> str:
    """What an installed package says of its licence: the SPDX expression, else classifiers, else its own words."""
    try:
        about = importlib.metadata.metadata(package.name)
    except importlib.metadata.PackageNotFoundError:
        return ELSEWHERE
    if expression := about.get("License-Expression"):
        return str(expression)
    classified = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License")]
    words = str(about.get("License") or "").strip().partition("\n")[0]
    return " and ".join(sorted(set(classified) - {"OSI Approved"})) or words or "says nothing"


def page(packages: list[Package]) -> str:
    """The list for people."""
    rows = [f"| {p.name} | {p.version} | {licence(p)} |{f' {p.marker} |' if p.marker else ' |'}" for p in packages]
    head = [
        "# Licences of what is installed",
        "",
        "Made by `make sbom` from `requirements.lock`, which pins every package with its hashes; nothing of them is in",
        "this repository. The last column says where a package is installed, if not everywhere.",
        "",
        "| package | version | licence | where |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *rows]) + "\n"


def cyclonedx(packages: list[Package]) -> str:
    """The same as CycloneDX 1.5."""
    components = [
        {
            "type": "library",
            "name": package.name,
            "version": package.version,
            "purl": f"pkg:pypi/{package.name}@{package.version}",
            "licenses": [{"license": {"name": licence(package)}}],
            "properties": [{"name": "sha256", "value": each} for each in package.hashes],
        }
        for package in packages
    ]
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}
    return json.dumps(document, indent=1) + "\n"


def main(lock: str, licences: str, sbom: str) -> None:
    """Write both files."""
    packages = pinned(Path(lock).read_text(encoding="utf-8"))
    Path(licences).write_text(page(packages), encoding="utf-8")
    Path(sbom).parent.mkdir(exist_ok=True)
    Path(sbom).write_text(cyclonedx(packages), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
