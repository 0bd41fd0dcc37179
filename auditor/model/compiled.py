"""How kernels of the model are compiled: as all others are."""

from __future__ import annotations

from connectors.codec.compiled import kernel as compiled

__all__ = ["compiled"]
