"""How decoders say what they could not read: as values, never as exceptions.

Bad *data* is a :class:`DecodeError` and ends as a row of the table ``decode_errors``. A user's mistake
(a path that is not there, an option without sense) is an :class:`AuditInputError` and ends in one line and exit 2;
what goes wrong otherwise is an :class:`AuditFailure` and exit 4.
"""

from __future__ import annotations

import re
from typing import NamedTuple


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
