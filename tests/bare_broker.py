"""A log directory made from nothing: no corpus behind it, so that a test decides every offset, epoch and time."""

from __future__ import annotations

from pathlib import Path

from tests import segments
from tests.coordinator_records import Coordinator
from tests.forge import TRANSACTIONAL, Batch, Forged, marker

COORDINATORS = 1  # partitions of __transaction_state, so that one owns every id
BEGAN = 1_795_300_000_000  # ms


def broker(root: Path, *folders: str, number: int = 1, start: int = 0, settings: str = "") -> Path:
    """The directory of a broker that was stopped cleanly, its partitions empty from offset ``start`` on."""
    path = root / f"broker-{number}"
    for folder in (*folders, "__transaction_state-0"):
        (path / folder).mkdir(parents=True)
        first = start if folder in folders else 0
        for suffix in ("log", "index", "timeindex"):
            (path / folder / f"{first:020}.{suffix}").touch()
        (path / folder / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {first}\n")
    (path / "meta.properties").write_text(f"version=1\nnode.id={number}\ncluster.id=Q0xVU1RFUi0tLS0tLS0tLQ\n")
    for name in ("log-start", "cleaner"):  # a broker has both, with the logs that need an entry
        (path / f"{name}-offset-checkpoint").write_text("0\n0\n")
    (path / ".kafka_cleanshutdown").touch()
    (root / f"server-{number}.properties").write_text(
        f"node.id={number}\nlog.dirs={path.name}\ntransaction.state.log.num.partitions={COORDINATORS}\n{settings}"
    )
    return path


def data(log: Forged, producer: int, sequence: int, time: int, *, transactional: bool = False, **header: int) -> Batch:
    """Three records of a producer behind the others."""
    bits = TRANSACTIONAL if transactional else 0
    fields = {"producer_id": producer, "epoch": 0, "sequence": sequence, "base_time": time, "max_time": time + 2}
    fields |= {"leader_epoch": 0, "attributes": bits} | header
    return log.append(Batch(segments.simple(log.end if log.all() else min(log.segments), 3, **fields)))


def end(log: Forged, of: Batch, commit: bool, time: int) -> Batch:
    """The end marker of a batch's producer behind all that is there."""
    last = marker(of, commit, base_offset=log.end, time=time)
    if not commit:
        log.aborted.append((of["producer_id"], of["base_offset"], last["base_offset"]))
    return log.append(last)


def finish(*saved: Forged | Coordinator) -> None:
    """Writes the files, and the checkpoint of the high watermarks: each log's end."""
    for one in saved:
        log = one.log if isinstance(one, Coordinator) else one
        if log.all():
            log.checkpoint("replication-offset-checkpoint", log.end)
        log.save()
