"""Which copy counts: between copies of one broker, of one topic, and of one log."""

from __future__ import annotations
