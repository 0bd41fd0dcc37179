"""Which driver opens the file system behind a URI: pyarrow's, else fsspec's if it is installed."""

from __future__ import annotations

import functools
import importlib
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from auditor.base import user_input
from auditor.base.at_rest import Values
from auditor.base.errors import AuditInputError
from auditor.connectors.asking import REFUSED
from auditor.connectors.threads import AT_ONCE

if TYPE_CHECKING:
    import pyarrow.fs as pafs

# pyarrow opens hdfs:// by Hadoop's own libraries, which no package of Python's brings; hdfs-native does without them.
_NO_HADOOP = re.compile(r"(?:Unable|Prior attempt) to load lib(?:jvm|hdfs)")
_DRIVERS = {"hdfs": "the packages fsspec and hdfs-native, or Hadoop with libhdfs"}
_CREDENTIALS = re.compile(r"DENIED|HTTP status 40[013]|Token|TOKEN|ACCESS_KEY|SIGNATURE|UNAUTHENTICATED")


@functools.lru_cache(maxsize=64)
def filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system behind a URI and the URI's path in it; one a process and URI.

    Errors: :class:`AuditInputError` when neither ``pyarrow.fs`` nor ``fsspec`` can open it.
    """
    import pyarrow.fs as pafs  # the clients of all stores: only where a URI needs them

    if pa.io_thread_count() < AT_ONCE:
        pa.set_io_thread_count(AT_ONCE)  # its S3 client has as many connections, and 25 at least
    scheme = user_input.parsed(uri).scheme
    try:
        files, path = pafs.FileSystem.from_uri(uri)
        return files, path
    except REFUSED as error:
        reason = str(error).partition("\n")[0].replace(uri, f"{scheme}://…")  # a URI may hold a password
        no_driver = isinstance(error, pa.ArrowInvalid | pa.ArrowNotImplementedError) or _NO_HADOOP.match(reason)
        if not no_driver:
            raise AuditInputError(f"{scheme}: {reason}; check the URI, its credentials and the network") from error
    try:
        fsspec = importlib.import_module("fsspec.core")  # no dependency: only where a URI needs it
    except ImportError:
        wanted = _DRIVERS.get(scheme, "fsspec and its driver")
        raise AuditInputError(f"{scheme}: {reason}; install {wanted}, or copy the files") from None
    try:
        other, path = fsspec.url_to_fs(uri)
    except RuntimeError as error:
        hint = "check the URI and, for HDFS, that HADOOP_CONF_DIR names the folder of its settings"
        raise AuditInputError(f"{scheme}: {type(error).__name__}; {hint}") from error
    except (OSError, ValueError, ImportError) as error:
        wanted = _DRIVERS.get(scheme, "the fsspec driver of this scheme")
        raise AuditInputError(f"{scheme}: {type(error).__name__}; install {wanted}") from error
    return pafs.PyFileSystem(_of_fsspec(other)), path


def _of_fsspec(other: Any) -> pafs.FSSpecHandler:
    """A file system of fsspec's for pyarrow. hdfs-native moves a file in place of another only where it is told to, as
    HDFS does it in one step, and names the time of writing otherwise."""
    import pyarrow.fs as pafs

    if "hdfs" not in other.protocol:
        return pafs.FSSpecHandler(other)

    class OfHadoop(pafs.FSSpecHandler):
        def move(self, src: str, dest: str) -> None:
            self.fs.mv(src, dest, overwrite=True)

        @staticmethod
        def _create_file_info(path: str, info: Values) -> pafs.FileInfo:
            mtime = info.get("modification_time", 0) / 1000
            return pafs.FSSpecHandler._create_file_info(path, {**info, "mtime": mtime})

    return OfHadoop(other)


def renewed(why: Exception) -> None:
    """Before a request is tried again: where it was refused for its credentials, those are looked up anew."""
    if _CREDENTIALS.search(str(why)):
        filesystem.cache_clear()


def refusal(uri: str, folder: str) -> Exception | None:
    """What a store has against listing a folder, which it says with a code; None for nothing."""
    import pyarrow.fs as pafs

    try:
        filesystem(uri)[0].get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    except REFUSED as error:
        return error
    return None
