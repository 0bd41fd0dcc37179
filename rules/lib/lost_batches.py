"""What a replica has that its log's leader has not: records that were lost with an election, or will be."""

from __future__ import annotations

import numpy as np

from auditor.base.values import Fields
from auditor.rules.lib.pairs import Pair, batches_of
from auditor.rules.seen.finding import iso
from auditor.rules.seen.view import LogView

TOP = 20  # transactions or producers of one finding shown in its evidence


def lost_of(log: LogView, pair: Pair) -> Fields | None:
    """What a replica has beside the leader's lineage: offsets, batches, times, producers and their transactions. None
    where it had to be read again and cannot."""
    names = ("base_offset", "producer_id", "max_timestamp", "last_offset")
    gone = list(batches_of(log, pair.replica).above(pair.forked_at, pair.until, names))
    if not any(len(rows["base_offset"]) for rows in gone):
        return None
    producers = np.unique(np.concatenate([rows["producer_id"] for rows in gone]))
    times = np.concatenate([rows["max_timestamp"] for rows in gone])
    last = int(np.concatenate([rows["last_offset"] for rows in gone]).max())
    open_or_ended = pair.replica.transactions
    theirs = open_or_ended[open_or_ended["last_offset"] >= pair.forked_at]
    return {
        "first_offset": pair.forked_at,
        "last_offset": last,
        "offsets": last - pair.forked_at + 1,
        "batches": len(times),
        "leader_epoch": pair.lost_epoch,
        "from": iso(int(times.min())),
        "to": iso(int(times.max())),
        "producers": [int(p) for p in producers if p >= 0][:TOP],
        "transactions": [
            {
                "producer_id": t["producer_id"],
                "first_offset": t["first_offset"],
                "last_offset": t["last_offset"],
                "transactional_id": log.owner(t["producer_id"]),
            }
            for t in theirs[:TOP]
        ],
        "lies_on": {
            "broker_id": pair.replica.broker_id,
            "log_dir": pair.replica.log_dir,
            "folder": pair.replica.folder,
        },
    }
