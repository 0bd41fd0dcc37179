"""How kernels of the model are compiled."""

from __future__ import annotations

from numba import njit

# Kernels allocate nothing, so nothing need be counted: numba would otherwise count references to every column of a
# tuple around each branch, which made the replay twenty times slower (bench/replay_model.py).
compiled = njit(cache=True, _nrt=False)
