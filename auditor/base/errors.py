"""Errors as values, and the limits that decoders keep."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from typing import NamedTuple

# How decoders say what they could not read: as values, never as exceptions.
#
# Bad *data* is a :class:`DecodeError` and ends as a row of the table ``decode_errors``. A user's mistake
# (a path that is not there, an option without sense) is an :class:`AuditInputError` and ends in one line and exit 2;
# what goes wrong otherwise is an :class:`AuditFailure` and exit 4.


class DecodeError(NamedTuple):
    """A stretch of bytes that could not be decoded, and why.

    ``file`` is relative to its log directory; ``position`` and ``length`` are bytes (length -1: unknown, to the end);
    ``reason`` is a stable code from :data:`REASONS`; ``detail`` says the facts in words, never payload. Of a segment's
    bytes that sound batches follow, ``first_offset`` and ``last_offset`` are what they can have held; of a batch of an
    unknown magic, the first is its own.
    """

    file: str
    position: int
    length: int
    reason: str
    detail: str
    first_offset: int = -1
    last_offset: int = -1


DAMAGED_FIELD = "damaged_field"
_DAMAGE = re.compile(
    r"(base offset|length|leader epoch|magic) is (-?\d+), where (-?\d+) (is right|is likely), "
    r"in a batch of producer (-?\d+) with epoch (-?\d+)"
)


class DamagedField(NamedTuple):
    """A field of a batch's header that no checksum covers: its value as ``stored``, and the ``expected`` one, which was
    taken. ``sure``: nothing else fits to what lies around it. The producer is the batch's, -1 for none."""

    name: str
    stored: int
    expected: int
    sure: bool
    producer_id: int = -1
    producer_epoch: int = -1

    def error(self, file: str, position: int, length: int, first_offset: int, last_offset: int) -> DecodeError:
        """The row about it; the bytes are those of the batch, the offsets those that it has."""
        certainty = "is right" if self.sure else "is likely"
        whose = f"in a batch of producer {self.producer_id} with epoch {self.producer_epoch}"
        detail = f"{self.name} is {self.stored}, where {self.expected} {certainty}, {whose}"
        return DecodeError(file, position, length, DAMAGED_FIELD, detail, first_offset, last_offset)

    @classmethod
    def of(cls, error: DecodeError) -> DamagedField | None:
        """What an error says of a damaged field; None where it is about something else."""
        said = _DAMAGE.fullmatch(error.detail) if error.reason == DAMAGED_FIELD else None
        if said is None:
            return None
        return cls(said[1], int(said[2]), int(said[3]), said[4] == "is right", int(said[5]), int(said[6]))


FLIPPED_BIT = "flipped_bit"
_FLIPPED = re.compile(r"bit ([0-7]) of byte (\d{1,9}) of the batch was flipped: inverted, the checksum is right")


class FlippedBit(NamedTuple):
    """The one bit (0: the lowest) of a byte of a batch whose inversion makes its checksum right."""

    byte: int
    bit: int

    def error(self, file: str, position: int, length: int) -> DecodeError:
        """The row about it; the bytes are those of the batch."""
        detail = f"bit {self.bit} of byte {self.byte} of the batch was flipped: inverted, the checksum is right"
        return DecodeError(file, position, length, FLIPPED_BIT, detail)

    @classmethod
    def of(cls, error: DecodeError) -> FlippedBit | None:
        """What an error says of a flipped bit; None where it is about something else."""
        said = _FLIPPED.fullmatch(error.detail) if error.reason == FLIPPED_BIT else None
        return None if said is None else cls(int(said[2]), int(said[1]))


REASONS = {
    "crc_mismatch": "the stored checksum is not that of the bytes",
    "truncated": "the bytes end before the structure does",
    "zero_filled": "zeros where a structure should begin",
    "bad_size": "a length field that no sound structure has",
    "bad_magic": "a record format version that does not exist",
    "bad_codec": "a compression codec that does not exist",
    "bad_compression": "the compressed stream cannot be decompressed",
    "bomb_limit": "decompression would exceed the limit in bytes or in ratio",
    "batch_limit": "a batch larger than the limit",
    DAMAGED_FIELD: "a field of a batch's header that its checksum does not cover; the value that fits was taken for it",
    FLIPPED_BIT: "the one bit of a batch whose inversion makes its checksum right; its records count for nothing",
    "bad_record": "the records of a batch do not parse",
    "bad_version": "a format version, or a level of a feature, that is newer than this reader",
    "bad_value": "a field with a value that its format forbids",
    "bad_setting": "a setting that the audit goes by: a value that no broker takes, or a line that does not parse",
    "bad_length": "a file whose length no whole number of entries gives",
    "unknown_key_type": "a record of an internal topic with a key type this reader does not know",
    "vendor": "a record of __cluster_metadata, or a feature, of a type or name that no Kafka has: a vendor's, left out",
    "not_text": "a text file that is not text",
    "bad_line": "a line that no known tool prints",
    "bad_manifest": "the manifest of a remote segment that does not say how it is stored",
    "encrypted": "a remote segment that is encrypted, whose key is not here",
    "unreadable": "the file could not be opened or read",
    "vanished": "the file, or its end, was there when the directory was listed and is gone now",
    "limit": "a stated limit was reached",
}


BREAKS_OFF = "that breaks off"  # how the detail of a batch of an unknown magic ends when the file has not all of it


RECORD_AT = "record at offset"  # how the detail of an error about one record of an internal topic begins


VENDOR = "vendor"
"""The reason of what is skipped and nothing more: neither unreadable nor damaged."""


UNREAD = frozenset({"bad_version", "unreadable", "limit", "bad_setting", "bad_manifest", "encrypted"})
"""The reasons that say so of themselves that a part could not be read."""


def is_unread(reason: str, detail: str) -> bool:
    """Whether an error says that a part of the input could not be read (exit status 3), not that it is damaged.

    That is so for what could not be opened, for what goes beyond a limit, for settings whose value cannot be one, for
    files and records of internal topics in a version that is newer than this reader, for such records of a type that
    is, and for remote segments that are encrypted or stored in a way that it does not know.
    """
    return reason in UNREAD or (reason == "unknown_key_type" and detail.startswith(RECORD_AT))


class _Sentence(Exception):
    def _render_traceback_(self) -> list[str]:
        """What a notebook shows (IPython asks for it): the message, and none of the calls within this package."""
        return [f"{type(self).__name__}: {self}"]


class AuditInputError(_Sentence):
    """A mistake of the user. The message is one line and ends with a hint on what to do."""


class AuditFailure(_Sentence):
    """The audit itself failed (memory, a disk, a bug): one sentence with a hint; exit 4."""


class StoreTrouble(_Sentence):
    """A store refuses or breaks off for now, after it was asked again for as long as that makes sense: nothing is known
    of the file, and the work may be tried elsewhere or later. ``code``: the store's own."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return f"the store says {self.code}, and went on to say so"


# The limits every decoder keeps, so that no input can exhaust the machine. Each has its reason code in ``errors``.


MIB = 1 << 20
OF_A_RULE = 1_000  # findings of a rule in a log
IN_ALL = 100  # times as many in a run


class Made:
    """What compressed bodies became so far, and what was stored of them, in bytes."""

    __slots__ = ("plain", "stored")

    def __init__(self) -> None:
        self.plain = self.stored = 0


class Limits(NamedTuple):
    """Bounds on one run's decoding. Sizes are bytes.

    ``max_batch_bytes`` caps a batch as stored and as decompressed (``--max-batch-bytes``); ``max_batch_ratio`` caps
    decompressed over stored size (``--max-batch-ratio``), but never below ``ratio_floor_bytes``. ``max_records`` is
    of a batch whose records are handed out one by one; summing them up needs no such limit. ``max_batch_ratio`` also
    holds for all batches of a file or replica together, whose bodies are counted in ``made`` (:meth:`counting`), but
    never below ``made_floor_bytes``: a megabyte of small bombs would keep a core busy for hours.

    What is made of a small file is larger than the file, so each kind has a limit in entries beside that in bytes.
    Checkpoints: a line a partition of the broker (Kafka's own guidance ends at some thousands) or a leader epoch of the
    log; 200 000 are some 60 MB here. Indexes: an entry every 4 096 bytes of a segment, preallocated to 10 MiB;
    2 Mi are 48 MiB here. Snapshots and transaction indexes: an entry a producer or aborted transaction; 4 Mi are
    184 MiB. ``max_bad_lines`` of a text file are named one by one. ``max_small_file_bytes`` holds for what is not named
    here, such as text dumps.
    """

    max_batch_bytes: int = 256 * MIB
    max_batch_ratio: int = 1000
    ratio_floor_bytes: int = 16 * MIB
    max_records: int = 4_000_000
    max_headers: int = 100_000
    max_small_file_bytes: int = 1024 * MIB
    max_properties_bytes: int = MIB
    max_checkpoint_bytes: int = 64 * MIB
    max_index_bytes: int = 256 * MIB
    max_checkpoint_entries: int = 200_000
    max_index_entries: int = 2 * MIB
    max_producer_entries: int = 4 * MIB
    max_bad_lines: int = 100
    max_files: int = 5_000_000
    max_path_length: int = 4096
    made_floor_bytes: int = 1024 * MIB
    made: Made | None = None

    def small_file(self, kind: str) -> int:
        """Bytes that are read of a file of this kind or name."""
        if kind in ("index", "timeindex", "txnindex", "snapshot"):
            return self.max_index_bytes
        if kind in ("meta.properties", "server.properties", "partition.metadata", "quorum-state", "rsm-manifest"):
            return self.max_properties_bytes
        return self.max_checkpoint_bytes

    def counting(self) -> Limits:
        """The same for one file or replica, all of whose bodies count together from here on."""
        return Limits(*self[:-1], made=Made())  # which is the last: _replace takes three times as long

    def decompressed_cap(self, stored: int) -> int:
        """Bytes that ``stored`` compressed bytes may become."""
        return max(0, min(self._cap(stored), self._left(stored)))

    def note_made(self, stored: int, plain: int) -> None:
        """``stored`` bytes became ``plain`` ones."""
        if self.made is not None:
            self.made.stored += stored
            self.made.plain += plain

    def is_used_up(self, stored: int) -> bool:
        """Whether ``stored`` more bytes may become less than they might if nothing had been opened before them."""
        return self._left(stored) < self._cap(stored)

    def _cap(self, stored: int) -> int:
        return min(self.max_batch_bytes, max(self.ratio_floor_bytes, stored * self.max_batch_ratio))

    def _left(self, stored: int) -> int:
        if self.made is None:
            return self.max_batch_bytes
        return max(self.made_floor_bytes, (self.made.stored + stored) * self.max_batch_ratio) - self.made.plain


DEFAULT_LIMITS = Limits()


# What is installed on request: one line that says how, where a part is asked for that is not there.
#
# The line names requirements, never this program's own distribution: nobody owns that name in a public index, and
# whoever
# registered it there would run code where the line is copied. ``pyproject.toml`` has the same requirements as extras.


PANDAS, SHTAB = "pandas>=2.2,<3", "shtab>=1.7"
# By extra, what pip is asked for.
REQUIREMENTS = {
    "spark": ("pyspark>=4.0,<5", PANDAS),
    "connect": ("pyspark[connect]>=4.0,<5", PANDAS),
    "expectations": ("great-expectations>=1.24,<2", PANDAS),
    "live": ("kafka-python>=3.0", "cryptography>=42"),
    "sql": ("duckdb>=1.1",),
}
# By the module that is imported: what it is there for, its package, and the extra that brings that; "": it comes alone.
EXTRAS = {
    "pyspark": ("running on Spark", "pyspark", "spark"),
    "py4j": ("running on Spark", "py4j", "spark"),
    "pandas": ("a pandas DataFrame", "pandas", ""),
    "grpc": ("Spark Connect", "grpcio", "connect"),
    "google": ("Spark Connect", "googleapis-common-protos", "connect"),
    "great_expectations": ("an expectation suite", "great-expectations", "expectations"),
    "kafka": ("reading a running cluster", "kafka-python", "live"),
    "cryptography": ("opening a PKCS12 or JKS store", "cryptography", "live"),
    "duckdb": ("SQL without Spark", "duckdb", "sql"),
}


def absent(module: str) -> AuditInputError | None:
    """What is said where ``module`` cannot be imported; None where no extra has it."""
    name = module.partition(".")[0]
    if name not in EXTRAS:
        return None
    purpose, package, extra = EXTRAS[name]
    return AuditInputError(f"{purpose} needs {package}, which is not installed; run: {install(extra)}")


def install(extra: str) -> str:
    """The command that installs what an extra brings for the running interpreter; pandas alone where it is none."""
    return install_command(REQUIREMENTS.get(extra, (PANDAS,)))


def install_command(requirements: tuple[str, ...]) -> str:
    """The command that installs some requirements for the running interpreter, quoted for a shell."""
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *requirements])


def require(module: str) -> None:
    """Errors: :class:`AuditInputError` where ``module`` of an extra is not installed. Imports nothing."""
    if importlib.util.find_spec(module) is None and (error := absent(module)) is not None:
        raise error
