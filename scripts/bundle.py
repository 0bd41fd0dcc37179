"""Pack the auditor for a Linux host that has no network: ``bundle.py DIRECTORY [PYTHON_VERSION [MACHINE]]``

The archive contains this project, the packages of ``requirements-run.lock`` (each file checked by its hash) and a start
script. It is for glibc, one machine type (x86_64 or aarch64; default x86_64) and one version of Python, which the host
has (default 3.11). An archive for the machine and Python that make it also contains the compiled kernels.
"""

from __future__ import annotations

import gzip
import io
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path, PurePosixPath

from pack_env import kernels  # beside this file
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-run.lock"
MACHINES = ("x86_64", "aarch64")
GLIBC = 28  # of 2.28, that is Red Hat 8, Debian 10, Ubuntu 20.04 or newer
# Not needed to run: what compilers and tests read, and a server that nobody here starts.
LEFT_OUT = re.compile(r"(^|/)(tests?|include|__pycache__)/|\.(a|pyx|pxd|pyi|h|lib)$|libarrow_flight|/_flight\.")
LAUNCHER = """\
#!/bin/sh
# Starts the auditor from this folder alone: nothing is installed, and no network is needed.
case $0 in */*) here=$(CDPATH= cd -- "${0%%/*}" && pwd) ;; *) here=$(pwd) ;; esac
for python in ${AUDITOR_PYTHON:-python%(version)s python3}; do
    if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (%(major)s, %(minor)s))' 2>/dev/null; then
        PYTHONPATH=$here/lib
        export PYTHONPATH
        exec "$python" -s -P -m auditor.cli "$@"
    fi
done
echo "auditor: this bundle needs Python %(version)s, which is not on PATH; AUDITOR_PYTHON names another place" >&2
exit 2
"""
EPOCH = 315_532_800  # 1980, before which zip has no time


def wanted(lock: str, version: str, machine: str) -> Iterator[str]:
    """The requirements of a lock, with their hashes, for a Linux host of this machine type with this Python."""
    target = {
        "platform_machine": machine, "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix",
        "python_version": version, "python_full_version": f"{version}.0", "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }  # fmt: skip
    for block in re.split(r"\n(?=\S)", lock.strip()):
        said, *hashes = re.split(r"\s*\\\n\s*", block.strip())
        requirement = Requirement(said)
        if requirement.marker is None or requirement.marker.evaluate(target):
            yield " ".join([f"{requirement.name}{requirement.specifier}", *(h for h in hashes if h[:2] == "--")])


def download(version: str, machine: str, folder: Path) -> list[Path]:
    """The wheels of the lock, by pip, which checks their hashes. Where one does not exist, pip's error is raised."""
    lock = folder / "lock"
    lock.write_text("\n".join(wanted(LOCK.read_text(), version, machine)) + "\n")
    platforms = [f"--platform=manylinux_2_{glibc}_{machine}" for glibc in range(GLIBC, 16, -1)]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes",
         "--disable-pip-version-check", *platforms, f"--platform=manylinux2014_{machine}", "--implementation=cp",
         f"--python-version={version}", "--dest", str(folder), "-r", str(lock)],
        check=True,
    )  # fmt: skip
    return sorted(folder.glob("*.whl"))


def project(folder: Path) -> Path:
    """The wheel of this project."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True,
                   capture_output=True)  # fmt: skip
    return next(folder.glob("kafka_log_auditor-*.whl"))


def unpacked(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """What a wheel puts on Python's path, by its place there."""
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            parts = PurePosixPath(info.filename).parts
            if parts[0].endswith(".data"):
                if parts[1] not in ("purelib", "platlib"):
                    continue  # commands and manual pages
                parts = parts[2:]
            name = "/".join(parts)
            if not info.is_dir() and ".." not in parts and not LEFT_OUT.search(name):
                yield name, archive.read(info)


def machine_code(version: str, machine: str) -> dict[str, bytes]:
    """The compiled kernels for any CPU of a machine type, by path; none if this Python, machine or numba differs."""
    here = (sys.platform, platform.machine(), "{}.{}".format(*sys.version_info[:2]))
    same = here == ("linux", machine, version) and f"numba=={metadata.version('numba')} " in LOCK.read_text()
    return kernels() if same else {}


def archive(top: str, files: Mapping[str, bytes], out: Path) -> None:
    """Writes the files below the folder ``top``, the same bytes for the same files."""
    with (
        out.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mtime = len(data), EPOCH
            info.mode = 0o755 if name == "auditor" else 0o644
            tar.addfile(info, io.BytesIO(data))


def bundle(folder: Path, version: str, machine: str) -> Path:
    """Make the archive and return its path."""
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as got:
        ours = project(Path(made))
        files = {
            f"lib/{n}": data for wheel in (*download(version, machine, Path(got)), ours) for n, data in unpacked(wheel)
        }
        files |= {f"lib/{name}": code for name, code in machine_code(version, machine).items()}
        release = ours.name.split("-")[1]
    major, minor = version.split(".")
    files["auditor"] = (LAUNCHER % {"version": version, "major": major, "minor": minor}).encode()
    files["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    top = f"auditor-{release}"
    out = folder / f"{top}-linux-{machine}-python{version}.tar.gz"
    archive(top, files, out)
    sys.stdout.write(
        f"{out}: {out.stat().st_size / 1e6:.0f} MB, for Linux on {machine} with glibc 2.{GLIBC} and Python {version}\n"
        f"on that host: tar xzf {out.name} && {top}/auditor copy /var/lib/kafka --out /copies/broker-1\n"
    )
    return out


if __name__ == "__main__":
    bundle(Path(sys.argv[1]), *(sys.argv[2:4] + ["3.11", "x86_64"][len(sys.argv) - 2 :]))
