"""The lines that ``kafka-dump-log.sh`` prints, of all releases since 0.8, as regular expressions over bytes.

reference/formats.md section 11. Numbers have at most 19 digits, so that a garbled line costs no more than its length;
whether they fit their column is checked where they are used.
"""

from __future__ import annotations

import re

_NUMBER = rb"-?[0-9]{1,19}"
_SHORTHANDS = {
    b"<TIME>": rb"(?P<time_label>CreateTime|LogAppendTime|NoTimestampType): @timestamp",
    # Header keys are printed raw, so one may hold a bracket or a newline: take the shortest that lets the line go on,
    # and look beyond the line's end only a little, since a garbled dump may have many such lines.
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
    """Compile a line: ``@name`` is a number, ``&name`` true or false, ``#`` a number of no interest."""
    for shorthand, meaning in _SHORTHANDS.items():
        pattern = pattern.replace(shorthand, meaning)
    pattern = pattern.replace(b"#", _NUMBER)
    pattern = re.sub(rb"@(\w+)", lambda found: b"(?P<%s>%s)" % (found[1], _NUMBER), pattern)
    return re.compile(re.sub(rb"&(\w+)", rb"(?P<\1>true|false)", pattern))


# The banner of a file, the first line of a segment's, and what is said of a torn end.
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

# What the tools, the JVM and a shell put between the lines above: known, and of no meaning here.
_NOISE = re.compile(
    rb"\s*|\[cut here\]|\[stderr\]|\.\.\.|\$ .*|Non-consecutive offsets in .*|\s+-?[0-9]+ is followed by -?[0-9]+"
    rb"|Mismatches in ?:.*|\s+Index (?:offset|position|timestamp): .*"
    rb"|Found (?:timestamp mismatch|out of order timestamp) in ?:.*"
    rb"|.* is empty\.|.* passed sanity check\.|.*Processed a total of [0-9]+ messages"
    rb"|\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:,]+\] (?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) .*"
    rb"|(?:[a-z]\w*\.){2,}\w*(?:Exception|Error)(?::.*)?|\s+at [\w.$/@-]+[.<][\w$<>]+\(.*\)|\s+\.\.\. [0-9]+ more"
    rb"|Caused by: .*|SLF4J.*|log4j:.*|OpenJDK .*warning.*|WARNING: .*|Picked up \w+: .*|.*has been deprecated.*"
)
# After such a line the tool printed nothing more of that file.
CRASH = re.compile(rb"Exception in thread \".*|Could not read record at offset .*|Error: .*")
_MAX_NOISE = 8192  # bytes; longer lines are none, and the pattern's cost may grow with the square of a line


def is_noise(line: bytes) -> bool:
    """Whether a line is one of a tool's, the JVM's or a shell's, of no meaning here."""
    return len(line) <= _MAX_NOISE and bool(_NOISE.fullmatch(line))
