"""The calls of kernels that run a graph."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.backends.base import Entry
from offcut.core.expr import Expr
from offcut.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Operand:
    """An array of a call: ``root[offset]`` on, with the kernel's axes.

    offset, strides  in elements, over the sizes of the graph
    """

    value: str
    root: str
    dtype: str
    offset: Expr
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]


@dataclass(frozen=True)
class Step:
    """A call of a kernel.

    code    the number of its code: two kernels of one code differ in constants alone
    name    of the value that it gives
    nodes   the operators that it runs
    inputs  of the kernel, in order; outputs likewise
    sizes   the kernel's sizes, in order, over those of the graph
    target  the name of the target that runs it; refused: those before it, and why they do not
    constants  of the graph: what the kernel calls each, and the order in which it has its axes
    limits     of its outputs, each of one element, where it measures what the next step reads: above one, the call is run again by
               sums as they are written; empty for any other step
    distributed  whether products are distributed over sums in it
    """

    kernel: Kernel
    entry: Entry | None
    code: int
    name: str
    nodes: tuple[str, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    sizes: tuple[tuple[str, Expr], ...]
    target: str
    refused: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    limits: tuple[float, ...] = ()
    distributed: bool = False
