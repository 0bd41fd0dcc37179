"""Transactional ids that may be Flink's, and what has to be said of their transactions.

A Flink sink pre-commits a transaction with a checkpoint and commits it once the checkpoint is complete, after a restart
too: its data is committed by restoring the job, not by writing it again. Source: TransactionalIdFactory and
TransactionNamingStrategyContextImpl of flink-connector-kafka; FLINK-23854, FLINK-39218.
"""

from __future__ import annotations

import re
from dataclasses import replace

from auditor.base.advice import Act, Advice

# PREFIX-SUBTASK-CHECKPOINT, an int and a long; pooled ids have a counter in place of the checkpoint.
_ID = re.compile(r".+-[0-9]{1,10}-[0-9]{1,19}", re.DOTALL)
IF_FLINK = (
    "If this is Flink: restoring the job from a checkpoint or savepoint commits the transactions which it holds and "
    "aborts the others; an abort by hand may lose records that it counts as written"
)


def may_be_flinks(transactional_id: str | None) -> bool:
    """Whether a transactional id has the form of Flink's."""
    return transactional_id is not None and _ID.fullmatch(transactional_id) is not None


def sent_again(transactional_id: str | None, data: str) -> str:
    """How to make up for committed records (``data``: their offsets in words) that no consumer gets, in words."""
    if may_be_flinks(transactional_id):
        return f"if this is Flink: no checkpoint brings the records of {data} back"
    return f"send the records of {data} again"


def for_flink(transactional_id: str | None, advice: Advice) -> Advice:
    """An advice about an id's transaction, which says what is different if the id is Flink's."""
    if not may_be_flinks(transactional_id) or IF_FLINK in advice.then or Act(IF_FLINK) in advice.act:
        return advice
    if advice.act:
        return replace(advice, act=(Act(IF_FLINK), *advice.act))
    rest = f". {advice.then[:1].upper()}{advice.then[1:]}" if advice.then else ""
    return replace(advice, then=f"{IF_FLINK}{rest}")
