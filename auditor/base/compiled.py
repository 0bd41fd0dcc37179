"""Kernels: functions that are compiled, or whose machine code is loaded, when they are first called.

A process that imports kernels and calls none, as the driver of an audit, never loads numba: see
:mod:`auditor.base.machine_code`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from auditor.base.at_rest import Numba

CHECKED = os.environ.get("NUMBA_BOUNDSCHECK", "0") not in ("", "0")  # whether kernels check each index


class Kernel:
    """A function that runs as machine code. ``py_func`` is the same as the interpreter runs it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function

    @functools.cached_property
    def dispatcher(self) -> Numba:
        """numba's function, which finds the machine code for the types of its arguments."""
        from auditor.base.machine_code import dispatcher

        return dispatcher(self.py_func)

    @property
    def _numba_type_(self) -> Numba:
        """What numba takes this for where another kernel calls it."""
        return self.dispatcher._numba_type_

    def __call__(self, *given: Any, **named: Any) -> Numba:
        """Calls the machine code for arguments of these types."""
        return self.dispatcher(*given, **named)


class ChosenKernel(Kernel):
    """The kernel that ``choose`` names when one is first needed, and its callers are compiled."""

    def __init__(self, choose: Callable[[], Kernel]) -> None:
        self.choose = choose

    @functools.cached_property
    def dispatcher(self) -> Numba:
        """That of the chosen one."""
        return self.choose().dispatcher


class _Instruction:
    """Machine instructions: see :func:`instruction`."""

    def __init__(self, define: Callable[..., Any]) -> None:
        self.define = define

    @functools.cached_property
    def _numba_type_(self) -> Numba:
        """What numba takes this for where a kernel calls it."""
        from auditor.base.machine_code import type_of_instruction

        return type_of_instruction(self.define)


def kernel(function: Callable[..., Any]) -> Numba:
    """``function`` as a :class:`Kernel`. It allocates nothing: its results go into arrays that it is given."""
    return Kernel(function)


def instruction(define: Callable[..., Any]) -> Numba:
    """What kernels call and Python cannot: machine instructions that ``define`` writes when a caller is compiled.

    ``define(context, *types)`` gives the signature and the function that builds them, as for numba's ``intrinsic``.
    """
    return _Instruction(define)
