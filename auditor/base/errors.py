"""Errors as values, the limits that decoders keep, and numbers read from text."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

# Errors as values, and the limits that decoders keep.


# Bad *data* is never an exception but a :class:`DecodeError`, a row of the table ``decode_errors``. A user's mistake (a
# missing path, a meaningless option) is an :class:`AuditInputError`: one line and exit code 2. All other failures are
# an :class:`AuditFailure` and exit code 4.


OTHER_VERSION = "of another version"


class StartFile(NamedTuple):
    """A file or directory that a starting broker reads, and that is not as it should be.

    ``file``: path relative to its log directory; ``kind``: its fixed name, or folder, number, checkpoint, metadata-log,
    topic-id, tail; ``state``: missing, empty, damaged, cut, name, other, or :data:`OTHER_VERSION`.
    """

    file: str
    kind: str
    state: str


class DecodeError(NamedTuple):
    """A stretch of bytes that could not be decoded, and why.

    ``file`` is relative to its log directory; ``position`` and ``length`` are bytes (length -1: unknown, to the end);
    ``reason`` is a stable code from :data:`REASONS`; ``detail`` states the facts in words, never payload. For bytes of
    a segment that sound batches follow, ``first_offset`` and ``last_offset`` bound the offsets they can have held; for
    a batch of an unknown magic, ``first_offset`` is its base offset.
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
    """A field of a batch header that no checksum covers, with its ``stored`` value and the ``expected`` one, which is
    used.

    ``sure``: no other value fits the surrounding batches. ``producer_id`` and ``producer_epoch`` are the batch's, -1
    for none.
    """

    name: str
    stored: int
    expected: int
    sure: bool
    producer_id: int = -1
    producer_epoch: int = -1

    @property
    def hides(self) -> bool:
        """Whether the batch is none, or another, as it is stored."""
        return self.name not in ("base offset", "leader epoch")

    def error(self, file: str, position: int, length: int, first_offset: int, last_offset: int) -> DecodeError:
        """The decode error for this field; position and length (bytes) and the offsets are those of the batch."""
        certainty = "is right" if self.sure else "is likely"
        whose = f"in a batch of producer {self.producer_id} with epoch {self.producer_epoch}"
        detail = f"{self.name} is {self.stored}, where {self.expected} {certainty}, {whose}"
        return DecodeError(file, position, length, DAMAGED_FIELD, detail, first_offset, last_offset)

    @classmethod
    def of(cls, error: DecodeError) -> DamagedField | None:
        """Parse the damaged field from a decode error; None for an error with another reason."""
        match = _DAMAGE.fullmatch(error.detail) if error.reason == DAMAGED_FIELD else None
        if match is None:
            return None
        return cls(match[1], int(match[2]), int(match[3]), match[4] == "is right", int(match[5]), int(match[6]))


FLIPPED_BIT = "flipped_bit"
_FLIPPED = re.compile(r"bit ([0-7]) of byte (\d{1,9}) of the batch was flipped: inverted, the checksum is right")


class FlippedBit(NamedTuple):
    """The one bit (0: the lowest) of a byte of a batch whose inversion makes its checksum correct."""

    byte: int
    bit: int

    def error(self, file: str, position: int, length: int) -> DecodeError:
        """The decode error for this bit; position and length (bytes) are those of the batch."""
        detail = f"bit {self.bit} of byte {self.byte} of the batch was flipped: inverted, the checksum is right"
        return DecodeError(file, position, length, FLIPPED_BIT, detail)

    @classmethod
    def of(cls, error: DecodeError) -> FlippedBit | None:
        """Parse the flipped bit from a decode error; None for an error with another reason."""
        match = _FLIPPED.fullmatch(error.detail) if error.reason == FLIPPED_BIT else None
        return None if match is None else cls(int(match[2]), int(match[1]))


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
    DAMAGED_FIELD: "a field of a batch's header that its checksum does not cover; the value that fits is used instead",
    FLIPPED_BIT: "the one bit of a batch whose inversion makes its checksum right; its records count for nothing",
    "bad_record": "the records of a batch do not parse",
    "bad_version": "a format version, or a level of a feature, that is newer than this reader",
    "bad_value": "a field with a value that its format forbids",
    "bad_setting": "a setting that the audit goes by: a value that no broker takes, or a line that does not parse",
    "bad_length": "a file whose length no whole number of entries gives",
    "unknown_key_type": "a record of an internal topic with a key type this reader does not know",
    "vendor": "a record of __cluster_metadata, or a feature, of a type or name that no Kafka has: a vendor's, skipped",
    "not_text": "a text file that is not text",
    "bad_line": "a line that no known tool prints",
    "bad_manifest": "the manifest of a remote segment that does not say how it is stored",
    "encrypted": "a remote segment that is encrypted, whose key is not here",
    "unreadable": "the file could not be opened or read",
    "vanished": "the file, or its end, was there when the directory was listed and is gone now",
    "limit": "a stated limit was reached",
    "not_judged": "a part of the audit failed on this input, which is a bug of the auditor: please report it",
}
BREAKS_OFF = "that breaks off"  # end of the detail about a batch of an unknown magic that is not all in the file
RECORD_AT = "record at offset"  # start of the detail of an error about one record of an internal topic
VENDOR = "vendor"  # the reason of what is skipped, but neither unreadable nor damaged
# Reasons that by themselves mean that a part could not be read.
UNREAD = frozenset({"bad_version", "unreadable", "limit", "bad_setting", "bad_manifest", "encrypted", "not_judged"})


def is_unread(reason: str, detail: str) -> bool:
    """Whether an error means that a part of the input could not be read (exit code 3), not that it is damaged.

    True for files that could not be opened, for exceeded limits, for invalid settings, for files and records of
    internal topics in a version newer than this reader, for records of an unknown type, and for remote segments that
    are encrypted or stored in an unknown way.
    """
    return reason in UNREAD or (reason == "unknown_key_type" and detail.startswith(RECORD_AT))


def is_damage(error: DecodeError) -> bool:
    """Whether an error is about the content of a file, which was there and could be read."""
    return error.reason != "vanished" and not is_unread(error.reason, error.detail)


class _Sentence(Exception):
    def _render_traceback_(self) -> list[str]:
        # IPython calls this: a notebook shows the message alone, not the calls within this package.
        return [f"{type(self).__name__}: {self}"]


class AuditInputError(_Sentence):
    """A user's mistake. The message is one line and ends with a hint on what to do."""


class AuditFailure(_Sentence):
    """The audit itself failed (memory, disk, a bug): one sentence with a hint; exit code 4."""


class StoreTrouble(_Sentence):
    """A store refuses or aborts requests after all retries. Nothing is known about the file; the work may be retried
    elsewhere or later. ``code``: the store's own."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return f"the store says {self.code}, repeatedly"


# Failures of one part of an audit, such as a rule: a row, while the other parts go on.


Made = TypeVar("Made")
FAILURES_RAISE = "AUDITOR_FAILURES_RAISE"  # environment variable: contain nothing, as in tests
NOT_CONTAINED = (AuditInputError, AuditFailure, StoreTrouble, OSError, MemoryError)


def attempt(
    failures: list[DecodeError], subject: str, make: Callable[[], Made], otherwise: Any, file: str = ""
) -> Made:
    """Return what ``make`` returns; where it raises, ``otherwise``, and add :func:`failure` to ``failures``."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001
        failures.append(failure(error, subject, file))
        result: Made = otherwise
        return result


def failure(error: Exception, subject: str, file: str = "") -> DecodeError:
    """Return the row of an exception. ``subject``: what then was not done, as the beginning of a sentence.

    Errors: the exception itself where a user, a store, the disk or the memory is to blame, and in tests.
    """
    if isinstance(error, NOT_CONTAINED) or os.environ.get(FAILURES_RAISE):
        raise error
    return DecodeError(file, 0, -1, "not_judged", f"{subject}: {cause_of(error)}")


def cause_of(error: BaseException) -> str:
    """Describe an exception for a report: its type and text, the innermost line of this program, and what to do."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "auditor" in Path(frame.filename).parts]
    where = "".join(f" ({'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno})" for frame in frames[-1:])
    lines = str(error).encode("utf-8", "replace").decode().strip().splitlines()[:1]
    what = ": ".join([type(error).__name__, *(line[:200] for line in lines)])
    return f"{what}{where}; please report this line and the version of the auditor"


# Limits that every decoder enforces, so that no input can exhaust the machine. Each has a reason code.


MIB = 1 << 20
OF_A_RULE = 1_000  # findings of a rule in a log
IN_ALL = 100  # times as many in a run


@dataclass(slots=True, eq=False)
class CompressionTotals:
    """Total size of the compressed bodies read so far, stored and decompressed, in bytes."""

    plain: int = 0
    stored: int = 0


class Limits(NamedTuple):
    """Bounds on one run's decoding. Sizes are bytes.

    ``max_batch_bytes`` caps a batch as stored and as decompressed (``--max-batch-bytes``); ``max_batch_ratio`` caps
    decompressed over stored size (``--max-batch-ratio``), but never below ``ratio_floor_bytes``. ``max_records``
    applies to a batch whose records are returned one by one, not to sums over them. ``max_batch_ratio`` also holds for
    all batches of a file or replica together, which are counted in ``made`` (:meth:`counting`), but never below
    ``made_floor_bytes``: a megabyte of small bombs would keep a core busy for hours.

    A small file takes more memory when decoded, so each kind has a limit in entries beside the one in bytes.
    Checkpoints: one line per partition of the broker (Kafka's guidance ends at some thousands) or per leader epoch of
    the log; 200,000 take some 60 MB. Indexes: one entry per 4,096 bytes of a segment, preallocated to 10 MiB; 2 Mi take
    48 MiB. Snapshots and transaction indexes: one entry per producer or aborted transaction; 4 Mi take 184 MiB.
    ``max_bad_lines`` of a text file are reported one by one. ``max_small_file_bytes`` holds for all other files, such
    as text dumps.
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
    made: CompressionTotals | None = None

    def small_file(self, kind: str) -> int:
        """The largest size (bytes) to read of a file of this kind or name."""
        if kind in ("index", "timeindex", "txnindex", "snapshot"):
            return self.max_index_bytes
        if kind in ("meta.properties", "server.properties", "partition.metadata", "quorum-state", "rsm-manifest"):
            return self.max_properties_bytes
        return self.max_checkpoint_bytes

    def counting(self) -> Limits:
        """These limits with fresh totals, for the bodies of one file or replica."""
        return Limits(*self[:-1], made=CompressionTotals())  # the last field; _replace takes three times as long

    def decompressed_cap(self, stored: int) -> int:
        """The largest size (bytes) to which ``stored`` compressed bytes may decompress."""
        return max(0, min(self._cap(stored), self._left(stored)))

    def note_made(self, stored: int, plain: int) -> None:
        """Add a body of ``stored`` bytes that decompressed to ``plain`` bytes to the totals."""
        if self.made is not None:
            self.made.stored += stored
            self.made.plain += plain

    def is_used_up(self, stored: int) -> bool:
        """Whether the totals so far lower the cap for ``stored`` more bytes."""
        return self._left(stored) < self._cap(stored)

    def _cap(self, stored: int) -> int:
        return min(self.max_batch_bytes, max(self.ratio_floor_bytes, stored * self.max_batch_ratio))

    def _left(self, stored: int) -> int:
        if self.made is None:
            return self.max_batch_bytes
        return max(self.made_floor_bytes, (self.made.stored + stored) * self.max_batch_ratio) - self.made.plain


DEFAULT_LIMITS = Limits()


# Optional packages, and the command that installs them.
#
# The command names requirements, never this program's own distribution: nobody owns that name in a public index, and
# whoever registered it there would run code where the line is pasted. ``pyproject.toml`` has the same requirements as
# extras.


PANDAS, SHTAB, DUCKDB = "pandas>=2.2", "shtab>=1.7", "duckdb>=1.3"
# Requirements for pip, by extra.
REQUIREMENTS = {
    "spark": ("pyspark>=4.0,<5", PANDAS),
    "connect": ("pyspark[connect]>=4.0,<5", PANDAS),
    "expectations": ("great-expectations>=1.24,<2", PANDAS, DUCKDB),
    "live": ("kafka-python>=3.0,<3.1", "cryptography>=42"),
    "sql": (DUCKDB,),
    "lake": ("deltalake>=1.6,<2",),
}
# By imported module: its purpose, its package, and the extra that installs it; "": the package is installed alone.
EXTRAS = {
    "pyspark": ("running on Spark", "pyspark", "spark"),
    "py4j": ("running on Spark", "py4j", "spark"),
    "pandas": ("a pandas DataFrame", "pandas", ""),
    "grpc": ("Spark Connect", "grpcio", "connect"),
    "google": ("Spark Connect", "googleapis-common-protos", "connect"),
    "great_expectations": ("an expectation suite", "great-expectations", "expectations"),
    "kafka": ("reading a running cluster", "kafka-python", "live"),
    "cryptography": ("opening a PKCS12 store", "cryptography", "live"),
    "duckdb": ("SQL without Spark", "duckdb", "sql"),
    "deltalake": ("--history-format delta", "deltalake", "lake"),
}


def absent(module: str) -> AuditInputError | None:
    """The error for a ``module`` that cannot be imported; None if no extra provides it."""
    name = module.partition(".")[0]
    if name not in EXTRAS:
        return None
    purpose, package, extra = EXTRAS[name]
    return AuditInputError(f"{purpose} needs {package}, which is not installed; run: {install(extra)}")


def install(extra: str) -> str:
    """The command that installs the packages of an extra for the running interpreter; those of pandas for an unknown
    extra."""
    return install_command(REQUIREMENTS.get(extra, (PANDAS,)))


def install_command(requirements: tuple[str, ...]) -> str:
    """The command that installs some requirements for the running interpreter, quoted for a shell."""
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *requirements])


def require(module: str) -> None:
    """Raise :class:`AuditInputError` if ``module`` of an extra is not installed. Imports nothing."""
    if importlib.util.find_spec(module) is None and (error := absent(module)) is not None:
        raise error


# Parse numbers from text; the value ranges of producer sequences and epochs.


# The length of a number is checked before it is parsed: parsing a very long one takes quadratic time.
_INT = re.compile(r"([+-]?)(\d+)\Z")
_MOST_DIGITS = 19  # of a number of 64 bits
_BLANK = "".join(map(chr, range(33)))  # what String.trim removes


def parse_int(text: str, bits: int = 64) -> int | None:
    """Parse a decimal as Java does; return None if it does not fit ``bits``. Leading zeros are ignored."""
    match = _INT.match(text)
    if match is None or len(digits := match[2].lstrip("0") or "0") > _MOST_DIGITS:
        return None
    value = int(match[1] + digits)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def setting_number(text: str | None, least: int = 0, bits: int = 64) -> int | None:
    """Parse the value of a setting; None for no value, one below ``least``, or one beyond ``bits``.

    Surrounding blanks are ignored, as in Kafka's ConfigDef.
    """
    value = None if text is None else parse_int(text.strip(_BLANK), bits)
    return None if value is None or value < least else value


# Sequences wrap around (DefaultRecordBatch.incrementSequence, KIP-98); the last epoch is reserved for fencing
# (KIP-890).
LAST_SEQUENCE = 2**31 - 1  # also a bit mask: the next sequence is 0
SEQUENCES = 2**31
LAST_EPOCH = 32_767  # fences an exhausted producer, or ends its last transaction

# Numbers of files are untrusted. Decoded columns keep them as they are; what computes with them reads them bounded, so
# that no sum of a few of them wraps. One that has reached its bound is out of range.
LAST_MS = 253_402_300_799_999  # the last millisecond of year 9999, the last year of SQL and Python
OUT_OF_RANGE_MS = LAST_MS + 1  # in place of any later time
MOST_OFFSET = 1 << 60  # of offsets and sizes: at 10 million a second, after 3,600 years


def bounded(number: Any, most: int = MOST_OFFSET) -> Any:
    """Return the nearest number from ``-most`` to ``most``, by default an offset; of an array, those of its numbers."""
    return min(max(number, -most), most) if isinstance(number, int) else number.clip(-most, most)


def bounded_time(ms: Any) -> Any:
    """Return a time (ms), or an array of them; one that is out of range as :data:`OUT_OF_RANGE_MS`."""
    return bounded(ms, OUT_OF_RANGE_MS)
