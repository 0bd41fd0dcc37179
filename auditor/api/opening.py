"""The way in: :func:`open`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_type_hints

from auditor import running
from auditor.api import notebook, open_options
from auditor.api.hints import check
from auditor.api.opened import OpenedAudit
from auditor.base.at_rest import Values
from auditor.base.errors import AuditInputError
from auditor.connectors.live import client_properties
from auditor.connectors.stores import storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open(
    *paths: open_options.AnyPath,
    spark: SparkSession | None = None,
    master: str | None = None,
    bootstrap_server: str | None = None,
    client_config: Values | None = None,
    command_config: open_options.AnyPath | None = None,
    progress: bool | None = None,
    **more: Unpack[open_options.OpenOptions],
) -> OpenedAudit:
    """Opens an audit of log directories, or of a running cluster. Nothing of them is read yet.

    Arguments:
        paths: Log directories, folders above some, partition folders, files, URIs (``s3://...``).
        spark: The session to run on, classic or Connect. It stays open, and learns the data sources.
        master: Where ``spark`` is not given: ``inline`` (the default: processes of this machine, no Java),
            ``inline[N]``, or a Spark master such as ``local[4]`` or ``sc://HOST:PORT``.
        bootstrap_server: With paths, what the commands of remedies name. Without, the cluster to read, by read-only
            requests (needs the extra ``live``).
        client_config: Options of the connection to that cluster, as kafka-python calls them.
        command_config: Instead, a file of Java client properties, as every Kafka tool takes them.
        progress: Whether a line says what is being done, while it is. By default it does in notebooks.
        more: The options of ``auditor audit`` by name (:class:`OpenOptions`).

    Returns:
        The audit, which is also a context manager.

    Errors:
        ``AuditInputError``, one sentence, for what is wrong with the call, a path that is not there too. Cost: of a URI
        a request.
    """
    own = {
        "master": master,
        "bootstrap_server": bootstrap_server,
        "client_config": client_config,
        "command_config": command_config,
        "progress": progress,
    }
    check(own, get_type_hints(open, localns={"SparkSession": Any}))
    if not paths and bootstrap_server is None:
        raise AuditInputError("auditor.open needs a path, or the bootstrap_server of a running cluster")
    if wrong := [path for path in paths if not isinstance(path, str | os.PathLike)]:
        given = type(wrong[0]).__name__
        raise AuditInputError(f"a path is a text or a Path, not a {given}; give several as open(*paths)")
    if spark is not None and not hasattr(spark, "createDataFrame"):
        given = type(spark).__name__
        raise AuditInputError(f"spark is a SparkSession, not a {given}; give the URL of a master as master=")
    if spark is not None and master is not None:
        raise AuditInputError("auditor.open takes spark or master, not both")
    live = not paths
    if live and more.get("work") is not None:
        raise AuditInputError("work keeps what was read of log directories; a running cluster is read anew each time")
    chosen = open_options.audit_options(
        paths,
        {**more, "as_of": "now"} if live and more.get("as_of") is None else more,
        bootstrap=bootstrap_server,
        master=master or "inline",
    )
    with running.failures():
        for path in chosen.inputs:
            storage.place(path)
    if spark is not None:
        from auditor.spark.session import register

        register(spark)
    if live and command_config is not None:
        client_config = {**client_properties.connection(Path(command_config)), **(client_config or {})}
    runner = running.runner_for(chosen.master, spark)
    return OpenedAudit(chosen, runner, client_config if live else None, live=live, shown=notebook.progress(progress))


open.__signature__ = open_options.signature(open)  # type: ignore[attr-defined]
