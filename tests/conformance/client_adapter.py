"""Runs `client` cases."""

from __future__ import annotations

from typing import Any

from tests.conformance.cases import Result
from tests.reference.client import Failure, on_produce_error


def run_model(case: dict[str, Any]) -> ClientModel:
    """A producer of the case's policy; it has no state of its own."""
    return ClientModel(case["policy"])


class ClientModel:
    """One client generation."""

    def __init__(self, policy: str) -> None:
        self.policy = policy

    def apply(self, op: str, args: dict[str, Any]) -> Result:
        assert op == "on_produce_error"
        failure = Failure(**args | {"record_errors": tuple(args.get("record_errors") or ())})
        return Result("ok", None, {"action": on_produce_error(self.policy, failure).value}, {})
