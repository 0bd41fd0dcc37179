"""Speed of the producer-state kernel: ``python -m bench.replay_model [PRODUCERS] [MILLION_BATCHES]``, one core.

Batches of all producers interleaved, each checked as a client append and applied; every tenth closes a transaction.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from auditor.model import producers as kernel
from auditor.model.compiled import compiled
from auditor.model.policies import OK, Policy, policy


@compiled
def replay(p: kernel.Producers, policy: Policy, producer_ids: np.ndarray, sequences: np.ndarray) -> tuple[int, int]:
    """Replay one-record batches, a marker after every tenth of a producer: batches refused, transactions closed."""
    refused = closed = 0
    for offset in range(len(producer_ids)):
        row = kernel.insert(p, producer_ids[offset])
        sequence = sequences[offset]
        if kernel.check_append(p, row, policy, 0, sequence, sequence) != OK:
            refused += 1
        kernel.apply_data(p, row, 0, sequence, offset, offset, offset, True)
        if sequence % 10 == 9 and kernel.apply_marker(p, row, 0, 0, offset) >= 0:
            closed += 1
    return refused, closed


def main(producers: int = 10_000, millions: int = 10) -> None:
    """Run round robin and shuffled, and print batches a second."""
    batches = millions * 1_000_000 // producers * producers
    shuffled = np.random.default_rng(1).permuted(np.tile(np.arange(producers), (batches // producers, 1)), axis=1)
    sequences = (np.arange(batches) // producers).astype(np.int32)
    replay(kernel.new_producers(producers), policy("kip-360"), np.arange(2), np.zeros(2, np.int32))
    for name, ids in (("round robin", np.arange(batches) % producers), ("shuffled", shuffled.ravel())):
        state = kernel.new_producers(producers)
        began = time.process_time()
        refused, closed = replay(state, policy("kip-360"), ids + 1000, sequences)
        took = time.process_time() - began
        rate = batches / took / 1e6
        print(f"{name}: {producers} producers, {rate:.1f} million batches/s, {refused} refused, {closed} closed")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
