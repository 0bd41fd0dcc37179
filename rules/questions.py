"""Rules that ask several questions: a page each, and which kinds of findings are its answers.

Each kind was a rule before, and has that id. What a page says once its kinds need not say; what explains findings of
all of them is declared here.
"""

from __future__ import annotations

from auditor.rules.catalogue.registry import merged
from auditor.rules.catalogue.relations import same_record, within_its_offsets

merged(
    "late-transaction",
    """A transaction holds readers back for longer than it should

    Why it matters: read_committed consumers stop at its first offset, and cleaning stops there too, until it ends.
    """,
    family="transactions",
    kinds=(
        "timeout-not-enforced",
        "long-open-transaction",
        "lso-stuck",
        "transaction-pinned-at-log-start",
        "pending-offsets-blocked",
    ),
)
merged(
    "undelivered-decision",
    """A transaction was decided, and a partition did not take its marker

    Why it matters: the data stays undecided: read_committed consumers stop before it, and while the coordinator still
    tries, every client of the id gets CONCURRENT_TRANSACTIONS.
    """,
    family="transactions",
    kinds=("stuck-prepare", "missing-marker"),
)
merged(
    "marker-against-decision",
    """A marker is not what the coordinator decided

    Why it matters: the transaction is not atomic any more: committed data is hidden, aborted data is read as committed,
    or what was acknowledged as committed is gone.
    """,
    family="cross-checks",
    kinds=("split-decision", "marker-contradicts-decision", "marker-without-decision"),
    one_by=same_record,
)
merged(
    "marker-of-a-wrong-coordinator",
    """A marker came from a coordinator that was replaced, or never was

    Why it matters: the coordinator epoch fences coordinators that were replaced; their decisions must not count.
    """,
    family="cross-checks",
    kinds=("unknown-coordinator-epoch", "coordinator-epoch-regression"),
)
merged(
    "impossible-transition",
    """A transactional id's records do not follow one another as a coordinator writes them

    Why it matters: coordinator data was lost, altered or mixed up: the decision of a transaction may be wrong or
    missing, and zombies may pass.
    """,
    family="coordinator",
    kinds=("illegal-transition", "transition-invariant-broken", "state-epoch-regression", "producer-id-reused"),
)
merged(
    "useless-coordinator-record",
    """Coordinators do not find, or cannot read, a record of theirs

    Why it matters: a coordinator that loads the partition goes on without it: ids and groups are stale or unknown.
    """,
    family="coordinator",
    kinds=("unreadable-transaction-record", "key-in-wrong-partition"),
)
merged(
    "producer-never-given-out",
    """Data has a producer id or an epoch that nobody gave out

    Why it matters: the data comes from another cluster, or the state of this one went back: ids collide, zombies pass.
    """,
    family="cross-checks",
    kinds=("data-epoch-ahead-of-coordinator", "producer-id-not-allocated"),
)
merged(
    "wrong-transaction-index",
    """A transaction index is not what the log gives

    Why it matters: read_committed consumers learn from the index what to leave out: they get aborted records, or lose
    committed ones.
    """,
    family="segment integrity",
    kinds=("aborted-transaction-not-indexed", "aborted-index-extra-entry", "replica-abort-index-divergence"),
)
merged(
    "malformed-batch",
    """A batch has not the form that brokers store""",
    family="record validation",
    kinds=(
        "record-structure-invalid",
        "malformed-control-batch",
        "producer-fields-inconsistent",
        "legacy-inner-record-invalid",
    ),
)
merged(
    "group-with-two-owners",
    """Two producers commit offsets of the same group and partition

    Why it matters: input is processed twice, or left out, although every transaction is atomic by itself.
    """,
    family="consumer offsets",
    kinds=("zombie-offset-commit", "interleaved-offset-producers"),
)
merged(
    "offset-out-of-range",
    """A group's offset does not lie in its log""",
    family="consumer offsets",
    kinds=("committed-offset-out-of-range", "share-offset-out-of-range"),
)
merged(
    "remote-copy-out-of-step",
    """Remote storage and the log do not keep step""",
    family="tiered storage",
    kinds=("remote-copy-behind", "remote-segment-leftover"),
)
merged(
    "producer-memory",
    """Producers take much of the brokers' memory

    Why it matters: every broker with a replica keeps them in its heap until they expire, and writes them into each
    producer snapshot.
    """,
    family="capacity",
    kinds=("producer-state-memory", "short-lived-producers"),
)
merged(
    "wrong-timestamp",
    """Times of batches or records are wrong

    Why it matters: retention, the time index and look-up by time go by them.
    """,
    family="record validation",
    kinds=("batch-timestamp-mismatch", "timestamp-out-of-range"),
    one_by=within_its_offsets,
)
merged(
    "what-if-refusal",
    """Another policy would have answered otherwise""",
    family="capacity",
    kinds=("what-if-rejection", "draft-false-duplicate"),
)
merged(
    "missing-records",
    """Records that a producer numbered are not in the log""",
    family="producer state",
    kinds=("sequence-gap", "committed-transaction-hole"),
)
merged(
    "nonzero-first-sequence",
    """A producer, or its epoch, does not begin at sequence 0""",
    family="producer state",
    kinds=("unknown-producer-first-sequence", "first-batch-after-bump-nonzero"),
)
merged(
    "repeated-sequences",
    """A producer's sequence numbers come again""",
    family="producer state",
    kinds=("duplicate-sequence-range", "sequence-reset-same-epoch"),
)
merged(
    "forgotten-producer",
    """A broker forgets a producer before its next write, or has forgotten it""",
    family="producer state",
    kinds=("producer-expired-while-active", "unknown-producer-exposure"),
)
merged(
    "wrong-snapshot",
    """A producer snapshot cannot be read, or is not what the log gives""",
    family="segment integrity",
    kinds=("snapshot-unreadable", "snapshot-replay-mismatch"),
)
merged(
    "replica-out-of-place",
    """A broker has a folder that no replica should have""",
    family="replicas",
    kinds=("replica-of-removed-topic", "partition-in-two-log-dirs"),
)
