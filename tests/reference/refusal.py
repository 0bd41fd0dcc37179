"""Error codes returned by the model."""

from __future__ import annotations

ILLEGAL_STATE = "ILLEGAL_STATE"
ILLEGAL_ARGUMENT = "ILLEGAL_ARGUMENT"
UNKNOWN_SERVER_ERROR = "UNKNOWN_SERVER_ERROR"
INTERNAL = (ILLEGAL_STATE, ILLEGAL_ARGUMENT)


class Refused(Exception):
    """An operation that a broker refuses; `error` is Kafka's name of the protocol error.

    `ILLEGAL_STATE` and `ILLEGAL_ARGUMENT` are Java exceptions inside the broker rather than protocol errors: a client
    sees :data:`UNKNOWN_SERVER_ERROR` in their place.
    """

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error

    def as_seen_by_client(self) -> Refused:
        """Return the same refusal as the protocol shows it."""
        return Refused(UNKNOWN_SERVER_ERROR) if self.error in INTERNAL else self
