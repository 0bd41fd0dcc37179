"""The models against Kafka's own classes: the same random histories are given to both, and everything is compared.

A history is a conformance case without expectations. ``kafka-4.1`` and ``kafka-2.3`` are Maven projects that name the
jars; the Java beside them runs the operations of a case on the classes in them, one JVM for many cases.
DIFFERENTIAL_HISTORIES says how many histories the tests of a model share (2000), DIFFERENTIAL_FROM with which one they
begin (0): a million may be taken in many runs. A seed decides all of a history.

The policies follow the trunk of October 2024. Where 4.1.0 has moved on, or where a class does what no broker meets,
the histories keep away, each with a word at its place:

- verification: 4.1.0 lets that of a version 2 client outlive a marker of its own epoch, and refuses to begin one of an
  older epoch; a follower's append that fails half-way ends the verifications of its first half;
- a log start within a batch: 4.1.0 pins the LSO at that batch's first offset, below the log start;
- a reload takes a whole segment as one append, so an epoch that falls and comes back there forgets no batch; and a
  broker whose map was empty before a truncation replays nothing;
- record sets: 4.1.0 meets some that it would have to convert down with an internal error, as its magic is always 2;
- TransactionMetadata: 4.1.0 may abort what never began, drops the start time in Empty, keeps the version there, and
  keeps the epoch before the bump as the last one at completion.
"""
