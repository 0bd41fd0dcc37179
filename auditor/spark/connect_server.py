"""Whether a Spark Connect server answers. pyspark's own client tries again for some 100 s, and says nothing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from auditor.base.errors import AuditInputError

SILENT_S, WAIT_S = 2, 30  # after so many seconds it is said that a server is waited for, and so many it is


def wait_for(url: str, say: Callable[[str], None]) -> None:
    """Waits until the server of an ``sc://`` URL takes connections, with TLS where the URL asks for it.

    What is missing for Connect is left to pyspark to say. Errors: :class:`AuditInputError` for a URL that is none, and
    where nobody answers.
    """
    if importlib.util.find_spec("grpc") is None:
        return
    import grpc  # type: ignore[import-untyped]  # its types are a package of their own
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        builder = DefaultChannelBuilder(url)
    except ValueError:  # PySparkValueError is one, too; both may quote a token
        raise AuditInputError(f"{url.partition(';')[0]} is no server of Spark Connect's; give sc://HOST:PORT") from None
    channel = builder.toChannel()
    ready = grpc.channel_ready_future(channel)
    try:
        if not _within(ready, SILENT_S):
            say(f"waiting for Spark at {builder.endpoint}, {WAIT_S} s at most")
            if not _within(ready, WAIT_S - SILENT_S):
                raise AuditInputError(
                    f"no Spark Connect server answers at {builder.endpoint} within {WAIT_S} s; start one there, or "
                    "give another --master"
                )
    finally:
        ready.cancel()
        channel.close()


def _within(ready: object, seconds: float) -> bool:
    import grpc

    try:
        ready.result(timeout=seconds)  # type: ignore[attr-defined]  # grpc comes without types
    except grpc.FutureTimeoutError:
        return False
    return True
