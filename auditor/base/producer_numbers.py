"""How far a producer's numbers go: sequences are a ring, epochs end.

Sources: DefaultRecordBatch.incrementSequence, KIP-98; the last epoch is reserved for fencing (KIP-890).
"""

from __future__ import annotations

LAST_SEQUENCE = 2**31 - 1  # a mask, too: behind it comes 0
SEQUENCES = 2**31
LAST_EPOCH = 32_767  # fences an exhausted producer, or ends its last transaction
