"""``auditor copy`` as a process beside a broker: what it needs, what it touches, and who goes first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import corpora

# What no base package has. The hook hears of whatever Python itself does to a file; of what libraries do tells the
# comparison of the directory.
SCRIPT = """
import ctypes, json, os, platform, sys
BLOCKED = {"pyspark", "py4j", "pandas", "duckdb", "great_expectations", "kafka", "cryptography", "fsspec",
           "scipy", "yaml"}
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocked())
EVENTS = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.utime", "os.link", "os.symlink",
          "os.truncate", "fcntl.flock", "fcntl.lockf", "fcntl.fcntl", "os.chown", "os.setxattr"}
source, out, heard = sys.argv[1], sys.argv[2], []
def hook(event, args):
    if event == "open" and isinstance(args[0], str) and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR):
        heard.append(f"open {args[0]}")
    elif event in EVENTS:
        what = os.readlink(f"/proc/self/fd/{args[0]}") if isinstance(args[0], int) else args[0]
        heard.append(f"{event} {what}")
sys.addaudithook(hook)
from auditor import cli
status = cli.main(["copy", source, "--out", out, "--quiet", "--limit-rate", "none"])
get = {"x86_64": 252, "aarch64": 31}.get(platform.machine())
io = ctypes.CDLL(None).syscall(get, 1, 0) >> 13 if sys.platform == "linux" and get else 3
print(json.dumps({"status": status, "nice": os.nice(0), "io": io, "heard": [h for h in heard if out not in h],
                  "loaded": sorted(BLOCKED & set(sys.modules)),
                  "pool": sys.modules["pyarrow"].default_memory_pool().backend_name}))
"""


def tree(top: Path) -> dict[str, tuple[int, ...]]:
    """All that a directory tells of its files, but for when they were read."""
    found = {}
    for path in (top, *top.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


@pytest.mark.parametrize("name", ["healthy-41", "hanging-43-killed"])
def test_a_copy_needs_the_base_package_writes_nothing_beside_its_target_and_lets_all_others_go_first(
    name: str, tmp_path: Path
) -> None:
    source, out = corpora.copy(name, tmp_path / "source"), tmp_path / "copy"
    before = tree(source)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(source), str(out)], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["loaded"] == []
    assert sys.platform != "linux" or said["pool"] == "system"  # Arrow was told before it was loaded
    assert said["status"] == 0
    assert said["nice"] == 19
    assert said["io"] == 3  # idle
    assert not [h for h in said["heard"] if str(source) in h or h.startswith("fcntl")]
    assert tree(source) == before
    assert (out / "0-THIS-IS-NO-BACKUP.txt").is_file()
