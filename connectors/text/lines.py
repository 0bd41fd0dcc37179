"""The lines that ``kafka-dump-log.sh`` prints, of all releases since 0.8, as regular expressions over bytes.

reference/formats.md section 11. Numbers have at most 19 digits, so that a garbled line costs no more than its length;
their range is checked by the users.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NUMBER = rb"-?[0-9]{1,19}"
_SHORTHANDS = {
    b"<TIME>": rb"(?P<time_label>CreateTime|LogAppendTime|NoTimestampType): @timestamp",
    # Header keys are printed raw, so one may contain a bracket or a newline: match the shortest after which the line
    # continues, and only a little beyond the line's end, since a garbled dump may have many such lines.
    b"<HEADERS>": rb" headerKeys: \[(?:(?:[^\]\n]|<BRACKET>){0,65536}|(?:[^\]]|<BRACKET>){0,1024})\](?=<AFTER>)",
    b"<BRACKET>": rb"\](?!<AFTER>)",
    b"<AFTER>": rb" (?:key|payload|endTxnMarker|controlType|isValid|crc|LeaderChange): | (?:Snapshot|KRaft)|\r?\n|\Z",
    b"<CONTROL>": (
        rb"(?: endTxnMarker: (?P<marker>COMMIT|ABORT) coordinatorEpoch: @coordinator_epoch"
        rb"| controlType: \w+\(@control_type\)"
        rb"| (?P<control_name>LeaderChange|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters):? \{[^\n]*\})?"
    ),
}


def _line(pattern: bytes) -> re.Pattern[bytes]:
    # @name is a number, &name true or false, # a number of no interest.
    for shorthand, meaning in _SHORTHANDS.items():
        pattern = pattern.replace(shorthand, meaning)
    pattern = pattern.replace(b"#", _NUMBER)
    pattern = re.sub(rb"@(\w+)", lambda match: b"(?P<%s>%s)" % (match[1], _NUMBER), pattern)
    return re.compile(re.sub(rb"&(\w+)", rb"(?P<\1>true|false)", pattern))


# The banner of a file, the first line of a segment's, and the message about an incomplete end.
BANNER = _line(rb"Dumping (?P<path>[^\n]+)")
STARTING = _line(rb"(?:Log s|S)tarting offset: #|Snapshot end offset: .*|KRaft bootstrap snapshot")
INVALID_TAIL = _line(rb"Found @size invalid bytes at the end of (?P<path>[^\n]+)")

BATCH = _line(
    rb"baseOffset: @base_offset lastOffset: @last_offset(?: count: @record_count)? baseSequence: @base_sequence"
    rb" lastSequence: # producerId: @producer_id producerEpoch: @producer_epoch"
    rb" partitionLeaderEpoch: @partition_leader_epoch isTransactional: &transactional(?: isControl: &control)?"
    rb"(?: deleteHorizonMs: OptionalLong(?:\.empty|\[@delete_horizon\]))? position: @position <TIME>"
    rb"(?: isvalid: &valid_early)? size: @size magic: @magic compresscodec: (?P<codec>\w+) crc: @crc"
    rb"(?: isvalid: &valid)? ?"
)
# A batch of magic 0 or 1; its offset is the last one of a compressed wrapper.
LEGACY_BATCH = _line(
    rb"offset: @last_offset position: @position <TIME>(?: isvalid: &valid_early)? size: @size magic: @magic"
    rb" compresscodec: (?P<codec>\w+) crc: @crc(?: isvalid: &valid)? ?"
)

# The start of a record line; its key and payload follow and are measured by the sizes in it.
RECORD = _line(
    rb"\| offset: @offset <TIME> key[sS]ize: @key_size value[sS]ize: @value_size(?: sequence: @sequence<HEADERS>)?"
    rb"(?: isValid: \w+ crc: \w+\}?| crc: \w+ isvalid: \w+)?<CONTROL>"
)
RECORD_28 = _line(  # 2.8 alone repeats the batch on each record
    rb"\| offset: @offset(?: isValid: \w+ crc: \w+)? keySize: @key_size valueSize: @value_size <TIME> baseOffset: #"
    rb" lastOffset: # baseSequence: # lastSequence: # producerEpoch: # partitionLeaderEpoch: # batchSize: # magic: #"
    rb" compressType: \w+ position: #(?: sequence: @sequence<HEADERS>)?(?: isValid: \w+ crc: \w+\}?)?<CONTROL>"
)
# Before 2.2 with --deep-iteration: records without batch lines. 0.8 and 0.9 show no time; up to 0.10 the key is last.
DEEP_RECORD = _line(
    rb"offset: @offset position: @position(?: <TIME>)? isvalid: &valid"
    rb"(?: keysize: @key_size valuesize: @value_size| payloadsize: @payload_size) magic: @magic"
    rb" compresscodec: (?P<codec>\w+)(?: producerId: @producer_id(?: producerEpoch: @producer_epoch)?"
    rb" sequence: @sequence isTransactional: &transactional<HEADERS>| crc: @crc(?: keysize: @late_key_size)?)<CONTROL>"
)

SNAPSHOT = _line(rb"producerId: # producerEpoch: #(?: \w+: [\w.()\[\]-]+){2,10} ?")
SNAPSHOT_PAIR = _line(
    rb"(?P<name>\w+): (?:(?:OptionalLong\[|Some\()?(?P<number>#)[\])]?|OptionalLong\.empty|None)(?= |\Z)"
)
ABORTED = _line(
    rb"version: @version producerId: @producer_id firstOffset: @first_offset lastOffset: @last_offset"
    rb" lastStableOffset: @last_stable_offset"
)
OFFSET_ENTRY = _line(rb"offset: @offset position: @position")
TIME_ENTRY = _line(rb"timestamp: @timestamp offset: @offset")

# Irrelevant lines of the tools, the JVM and a shell.
_NOISE = re.compile(
    rb"\s*|\[cut here\]|\[stderr\]|\.\.\.|\$ .*|Non-consecutive offsets in .*|\s+-?[0-9]+ is followed by -?[0-9]+"
    rb"|Mismatches in ?:.*|\s+Index (?:offset|position|timestamp): .*"
    rb"|Found (?:timestamp mismatch|out of order timestamp) in ?:.*"
    rb"|.* is empty\.|.* passed sanity check\.|.*Processed a total of [0-9]+ messages"
    rb"|\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:,]+\] (?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) .*"
    rb"|(?:[a-z]\w*\.){2,}\w*(?:Exception|Error)(?::.*)?|\s+at [\w.$/@-]+[.<][\w$<>]+\(.*\)|\s+\.\.\. [0-9]+ more"
    rb"|Caused by: .*|SLF4J.*|log4j:.*|OpenJDK .*warning.*|WARNING: .*|Picked up \w+: .*|.*has been deprecated.*"
)
# After such a line the tool printed nothing more about that file.
CRASH = re.compile(rb"Exception in thread \".*|Could not read record at offset .*|Error: .*")
_MAX_NOISE = 8192  # bytes; no longer ones are printed, and the pattern's cost may be quadratic


def is_noise(line: bytes) -> bool:
    """Whether a line is irrelevant output of a tool, the JVM or a shell."""
    return len(line) <= _MAX_NOISE and bool(_NOISE.fullmatch(line))


# The end of a record line's key and payload, which are printed raw: they may contain newlines, and lines like ours.


KEY = b" key: "
PAYLOAD = b" payload: "
_ID_PREFIXES = (
    b"transaction_metadata::transactionalId=",
    b"transactionalId=",
    b"group_metadata::group=",
    b"metadata::",
)
_ID_OVERHEAD = 4  # a stored key holds two bytes of type and two of length besides the id


class PrintedRecord(NamedTuple):
    """Key and payload as printed, None if not shown; ``end`` is the end of the line.

    ``exact``: the sizes in the line confirm where the text ends.
    """

    key: bytes | None
    value: bytes | None
    end: int
    exact: bool


def line_end(text: bytes, position: int) -> int:
    """The index of the newline that ends the line at ``position``, or the length of the text."""
    end = text.find(b"\n", position)
    return len(text) if end < 0 else end


def take(text: bytes, position: int, key_size: int, value_size: int) -> PrintedRecord | None:
    """Key and payload from ``position`` on, the end of a record line's known part; None for other text."""
    if position == len(text) or text[position : position + 1] == b"\n":
        return PrintedRecord(None, None, position, True)
    if not text.startswith((KEY, PAYLOAD), position):
        return None
    return (
        _by_sizes(text, position, key_size, value_size)
        or _decoded_id(text, position, key_size)
        or _by_line(text, position)
    )


def _by_sizes(text: bytes, position: int, key_size: int, value_size: int) -> PrintedRecord | None:
    # Printed raw: key and payload have the stored sizes, unless they are not UTF-8.
    key = value = None
    if text.startswith(KEY, position) and key_size >= 0:
        key = text[position + len(KEY) : position + len(KEY) + key_size]
        position += len(KEY) + key_size
    if text.startswith(PAYLOAD, position) and value_size >= 0:
        value = text[position + len(PAYLOAD) : position + len(PAYLOAD) + value_size]
        position += len(PAYLOAD) + value_size
    elif value_size >= 0:
        return None
    whole = position == len(text) or (position < len(text) and text[position] == ord("\n"))
    return PrintedRecord(key, value, position, True) if whole else None


def _decoded_id(text: bytes, position: int, key_size: int) -> PrintedRecord | None:
    # A decoded key that is only an id: its length follows from the stored key's.
    start = position + len(KEY)
    prefix = next((item for item in _ID_PREFIXES if text.startswith(KEY + item, position)), None)
    if prefix is None:
        return None
    end = start + len(prefix) + key_size - _ID_OVERHEAD
    if end < start or not text.startswith(PAYLOAD, end):
        return None
    stop = line_end(text, end + len(PAYLOAD))
    return PrintedRecord(text[start:end], text[end + len(PAYLOAD) : stop], stop, True)


def _by_line(text: bytes, position: int) -> PrintedRecord:
    # Up to the line's end, split at the first place where a payload may start.
    stop = line_end(text, position)
    key, separator, value = text[position:stop].partition(PAYLOAD)
    return PrintedRecord(key[len(KEY) :] if key.startswith(KEY) else None, value if separator else None, stop, False)


# Recognising text dumps by their first bytes.


HEAD_BYTES = 64 * 1024

# At least one line near the top of a dump matches. reference/formats.md section 11.
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

# What stands before every line where a text was pasted or logged: spaces, quote signs, a container's name and a bar, a
# time stamp. Numbers in it may differ from line to line.
_PREFIX = re.compile(
    r"(?:[ \t>]|[\w./-]{1,64}[ \t]*\|[ \t]|\[?\d{4}-\d\d-\d\d[T ][\d:.,]{8,20}(?:Z|[+-]\d\d:?\d\d)?\]?[ \t])+(?=\S)"
)
_ID_TWICE = re.compile(r"(.*)::TransactionMetadata\(transactionalId=(.*), producerId")


def decode_text(data: bytes) -> str:
    """The text of a dump: UTF-8, or as its byte order mark says (PowerShell writes UTF-16).

    Invalid bytes become U+FFFD.
    """
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding, "replace")


def sniff(head: bytes) -> str | None:
    """The kind of a text dump by its first bytes (:data:`HEAD_BYTES` are enough), None for any other file.

    ``dump``: output of kafka-dump-log.sh for segments, snapshots and indexes. ``console``: output of the console
    consumer for internal topics with a formatter. Both also where every line has the same prefix.
    """
    return _recognised(decode_text(head))[0]


def _recognised(text: str) -> tuple[str | None, str]:
    # The kind of a text, and the prefix of its first line that is of this kind.
    if "\0" in text:
        return None, ""
    rows = text.splitlines()[:_MAX_LINES]
    for line in rows:
        if _DUMP.fullmatch(line):
            return "dump", ""
        if _CONSOLE.fullmatch(line):
            return "console", _shared_prefix([row for row in rows if _CONSOLE.fullmatch(row)])
    for line in rows:
        match = _PREFIX.match(line)
        if match is not None and _DUMP.fullmatch(line, match.end()):
            return "dump", match[0]
        # The sign before a record is the tool's own.
        if match is not None and match[0].endswith("| ") and _DUMP.fullmatch(line, match.end() - 2):
            return "dump", match[0][:-2]
        if match is not None and _CONSOLE.fullmatch(line, match.end()):
            return "console", match[0]
    return None, ""


def _shared_prefix(rows: list[str]) -> str:
    # Of a formatter's lines, which begin with an id: what stands before the id that is printed twice, or before the
    # group and topic in brackets. Lines that begin with an id alone show no prefix.
    prefixes = set()
    for row in rows:
        twice = _ID_TWICE.match(row)
        if twice is not None and twice[1].endswith(twice[2]):
            prefixes.add(twice[1].removesuffix(twice[2]))
        elif twice is None and (match := _PREFIX.match(row)) is not None and row.startswith("[", match.end()):
            prefixes.add(match[0])
    return prefixes.pop() if len({_without_numbers(prefix) for prefix in prefixes}) == 1 else ""


def _without_numbers(prefix: str) -> str:
    return re.sub(r"\d+", "0", prefix)


def normalise(data: bytes) -> bytes:
    """A dump as UTF-8 without a byte order mark, with LF line ends, and without a prefix that its lines share."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = decode_text(data).encode("utf-8", "replace")
    data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    _, prefix = _recognised(decode_text(data[:HEAD_BYTES]))
    if not prefix:
        return data
    pattern = re.sub(rb"\d+", rb"\\d+", re.escape(prefix.encode()))
    return re.sub(rb"(?m)^" + pattern, b"", data)
