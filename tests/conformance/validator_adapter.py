"""Runs `validator` cases."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tests.conformance.cases import Result
from tests.reference.append_analysis import DEFAULT_SEGMENT_BYTES, BatchHeader, analyze
from tests.reference.record_set import Batch, Record, RecordError, Rejected, ValidationMetrics
from tests.reference.validator import TopicSettings, validate

Args = dict[str, Any]
LOG_APPEND_TIME = "LogAppendTime"


def run_model(case: dict[str, Any]) -> ValidatorModel:
    """A partition leader's validator, with all metrics at 0."""
    return ValidatorModel()


def _record(fields: Args) -> Record:
    return Record(
        fields["offset"],
        fields["timestamp"],
        fields["key"] is not None,
        fields["magic"],
        fields["crc_ok"],
        fields["compressed"],
    )


def _batch(fields: Args) -> Batch:
    same = {name: fields[name] for name in Batch._fields if name in fields and name != "records"}
    records = tuple(_record(record) for record in fields["records"])
    return Batch(records=records, log_append_time=fields["timestamp_type"] == LOG_APPEND_TIME, **same)


class ValidatorModel:
    """Validation with the metrics and the last culprits kept."""

    def __init__(self) -> None:
        self.metrics = ValidationMetrics()
        self.record_errors: tuple[RecordError, ...] = ()

    def apply(self, op: str, args: Args) -> Result:
        try:
            returns = {"validate": self.validate, "analyze": self.analyze}[op](args)
        except Rejected as rejected:
            self.record_errors = rejected.record_errors
            return Result("error", rejected.error, {}, self.state())
        return Result("accepted", None, returns, self.state())

    def state(self) -> Args:
        return {
            "record_errors": [asdict(error) for error in self.record_errors],
            "metrics": self.metrics.as_dict(),
        }

    def validate(self, args: Args) -> Args:
        same = {name: args[name] for name in TopicSettings._fields if name in args}
        settings = TopicSettings(log_append_time=args["timestamp_type"] == LOG_APPEND_TIME, **same)
        validated = validate(
            [_batch(batch) for batch in args["batches"]],
            settings,
            args["source_compression"],
            args["origin"],
            args["now"],
            args["next_offset"],
            self.metrics,
        )
        return validated._asdict() | {"offsets": list(validated.offsets)}

    def analyze(self, args: Args) -> Args:
        analyze(
            [BatchHeader(**batch) for batch in args["batches"]],
            args["origin"],
            args["max_message_bytes"],
            args["log_end"],
            self.metrics,
            args.get("segment_bytes", DEFAULT_SEGMENT_BYTES),
        )
        return {}
