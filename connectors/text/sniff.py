"""Tell text dumps from other files by their first bytes."""

from __future__ import annotations

import re

HEAD_BYTES = 64 * 1024

# What at least one line near the top of a dump matches. reference/formats.md section 11.
_DUMP = re.compile(
    r"Dumping \S.*|(?:Log s|S)tarting offset: [0-9]+"
    r"|baseOffset: [0-9]+ lastOffset: [0-9]+ .*|\|? ?offset: [0-9]+ .*"
    r"|producerId: -?[0-9]+ producerEpoch: -?[0-9]+ .*|version: [0-9]+ producerId: [0-9]+ firstOffset: .*"
    r"|timestamp: -?[0-9]+ offset: [0-9]+"
)
_CONSOLE = re.compile(
    r"\{\"key\":\{\"(?:type|version)\":[0-9].*"
    r"|.*::(?:NULL|TransactionMetadata\(.*|\[?OffsetAndMetadata[\[(].*|\[OffsetMetadata\[.*|GroupMetadata\(.*)"
)
_MAX_LINES = 400


def decode_text(data: bytes) -> str:
    """The text of a dump: UTF-8, or what its byte order mark says (as PowerShell writes).

    Wrong bytes become U+FFFD.
    """
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding, "replace")


def sniff(head: bytes) -> str | None:
    """The kind of a text dump by its first bytes (:data:`HEAD_BYTES` are enough), None for anything else.

    ``dump``: what kafka-dump-log.sh prints of segments, snapshots and indexes. ``console``: what the console consumer
    prints of internal topics with a formatter.
    """
    text = decode_text(head)
    if "\0" in text:
        return None
    for line in text.splitlines()[:_MAX_LINES]:
        if _DUMP.fullmatch(line):
            return "dump"
        if _CONSOLE.fullmatch(line):
            return "console"
    return None


def normalise(data: bytes) -> bytes:
    """A dump as UTF-8 without a byte order mark and with LF line ends, whatever wrote it to a file."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = decode_text(data).encode("utf-8", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
