"""Kernels: functions that run as machine code.

Kernels are compiled, or their machine code is loaded, when they are first called. A process that imports kernels and
calls none, such as the driver of an audit, never loads numba (:mod:`auditor.base.machine_code`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

Numba = Any  # what numba and llvmlite accept and return: they have no type hints
CHECKED = os.environ.get("NUMBA_BOUNDSCHECK", "0") not in ("", "0")  # whether kernels check each index


class Kernel:
    """A function that runs as machine code. ``py_func`` is the same function in the interpreter."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function

    @functools.cached_property
    def dispatcher(self) -> Numba:
        """numba's function, which selects the machine code by argument types."""
        from auditor.base.machine_code import dispatcher

        return dispatcher(self.py_func)

    @property
    def _numba_type_(self) -> Numba:
        return self.dispatcher._numba_type_

    def __call__(self, *given: Any, **named: Any) -> Numba:
        """Calls the machine code for arguments of these types."""
        return self.dispatcher(*given, **named)


class ChosenKernel(Kernel):
    """The kernel that ``choose`` returns when one is first needed and its callers are compiled."""

    def __init__(self, choose: Callable[[], Kernel]) -> None:
        self.choose = choose

    @functools.cached_property
    def dispatcher(self) -> Numba:
        """numba's function of the chosen kernel."""
        return self.choose().dispatcher


class _Instruction:
    def __init__(self, define: Callable[..., Any]) -> None:
        self.define = define

    @functools.cached_property
    def _numba_type_(self) -> Numba:
        from auditor.base.machine_code import type_of_instruction

        return type_of_instruction(self.define)


def kernel(function: Callable[..., Any]) -> Numba:
    """Make a :class:`Kernel` of ``function``. It must not allocate: results are written to arrays passed in."""
    return Kernel(function)


def instruction(define: Callable[..., Any]) -> Numba:
    """Machine instructions that kernels can call and Python cannot; ``define`` emits them when a caller is compiled.

    ``define(context, *types)`` returns the signature and the code generator, as for numba's ``intrinsic``.
    """
    return _Instruction(define)
