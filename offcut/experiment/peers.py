"""Other libraries on the same contraction, each called the way that is fastest for it.

A peer offers several *ways*: numpy's matmul into a given array, torch's `mm`, its `linear`, and the
same with a weight packed beforehand by oneDNN or by MKL. What a way prepares from constant operands
(a transposed copy, a packed one) is outside its measured time, as packing is for offcut.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from offcut.errors import DescribeError
from offcut.experiment.contraction import Array, Problem
from offcut.experiment.timing import Run


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute a problem.

    run    one call on operands that it holds
    read   the result of the latest `run`, from what that returned; axes as the problem has them
    """

    name: str
    run: Run
    read: Callable[[Any], Array]


class Contender(Protocol):
    """Something that computes contractions: a strategy of offcut's, or a peer."""

    @property
    def name(self) -> str:
        """What tables and pictures call it."""

    def ways(self, problem: Problem) -> tuple[Way, ...]:
        """The ways it has to compute `problem`; none when it cannot."""


@dataclass(frozen=True, slots=True)
class Matmul:
    """A contraction seen as ``c[b, m, n] = sum over k of a[b, m, k] * b[b, k, n]``.

    The arrays are without the axis b when the contraction has no axis that both operands and the
    result share. `c` is a view of `out`, so writing the one writes the other.
    """

    a: Array
    b: Array
    c: Array
    out: Array
    constant_b: bool

    @property
    def batched(self) -> bool:
        """Whether there is an axis b."""
        return self.a.ndim == 3


def as_matmul(problem: Problem) -> Matmul | None:
    """`problem` as a matrix product, or None when it is not one.

    Axes are grouped by who has them: both operands and the result (b), the first and the result
    (m), the second and the result (n), both operands (k). Constants are copied where that makes
    their groups adjacent; another operand must be a view, or the copy would not be timed.
    """
    contraction = problem.contraction
    if len(contraction.operands) != 2:
        return None
    left, right = contraction.operands
    if len(set(left)) < len(left) or len(set(right)) < len(right):
        return None
    result = contraction.result
    shared = [x for x in result if x in left and x in right]
    rows = [x for x in result if x not in right]
    columns = [x for x in result if x not in left]
    inner = [x for x in left if x in right and x not in result]
    if len(shared) + len(rows) + len(inner) < len(left):
        return None
    if len(shared) + len(columns) + len(inner) < len(right):
        return None

    def grouped(
        array: Array, letters: str, groups: tuple[list[str], ...], copy: bool
    ) -> Array | None:
        axes = [letters.index(x) for group in groups for x in group]
        sizes = [int(np.prod([problem.sizes[x] for x in group], dtype=int)) for group in groups]
        seen = array.transpose(axes).reshape(sizes)
        if np.may_share_memory(seen, array):
            return seen
        return np.ascontiguousarray(seen) if copy else None

    batch = (shared,) if shared else ()
    name_a, name_b = contraction.names
    out = problem.result()
    a = grouped(problem.arrays[name_a], left, (*batch, rows, inner), name_a in problem.constant)
    b = grouped(problem.arrays[name_b], right, (*batch, inner, columns), name_b in problem.constant)
    c = grouped(out, result, (*batch, rows, columns), copy=False)
    if a is None or b is None or c is None:
        return None
    return Matmul(a, b, c, out, name_b in problem.constant)


@dataclass(frozen=True, slots=True)
class Numpy:
    """numpy with its BLAS: matmul into a given array, or einsum where that does not fit."""

    only: str = ""

    @property
    def name(self) -> str:
        """`numpy`, or the one way that was asked for."""
        return self.only or "numpy"

    def ways(self, problem: Problem) -> tuple[Way, ...]:
        """`numpy.matmul` for a matrix product, `numpy.einsum` for everything else."""
        if self.only == "numpy.einsum":
            return self._einsum(problem)
        return _keep(self.only, self._matmul(problem) or self._einsum(problem))

    def _matmul(self, problem: Problem) -> tuple[Way, ...]:
        product = as_matmul(problem)
        if product is None:
            return ()
        run = partial(np.matmul, product.a, product.b, out=product.c)
        return (Way("numpy.matmul", run, lambda _: product.out),)

    def _einsum(self, problem: Problem) -> tuple[Way, ...]:
        out = problem.result()
        operands = [problem.arrays[name] for name in problem.contraction.names]
        run = partial(np.einsum, str(problem.contraction), *operands, out=out, optimize=True)
        return (Way("numpy.einsum", run, lambda _: out),)


@dataclass(frozen=True, slots=True)
class Torch:
    """torch on the CPU: mm or bmm, linear, and a weight packed by oneDNN or by MKL.

    MKL packs for a hint of the number of rows, and is given the right one at every size.
    """

    torch: Any
    only: str = ""

    @property
    def name(self) -> str:
        """`torch`, or the one way that was asked for."""
        return self.only or "torch"

    def ways(self, problem: Problem) -> tuple[Way, ...]:
        """Every way that this build of torch has for `problem`."""
        product = as_matmul(problem)
        if product is None:
            return _keep(self.only, self._einsum(problem))
        return _keep(self.only, (*self._product(product), *self._constant(product)))

    def _einsum(self, problem: Problem) -> tuple[Way, ...]:
        names = problem.contraction.names
        operands = [self.torch.from_numpy(problem.arrays[name]) for name in names]
        run = partial(self.torch.einsum, str(problem.contraction), *operands)
        return (Way("torch.einsum", run, lambda value: value.numpy()),)

    def _product(self, product: Matmul) -> tuple[Way, ...]:
        a, b, c = map(self.torch.from_numpy, (product.a, product.b, product.c))
        name, call = ("bmm", self.torch.bmm) if product.batched else ("mm", self.torch.mm)
        return (Way(f"torch.{name}", partial(call, a, b, out=c), lambda _: product.out),)

    def _constant(self, product: Matmul) -> tuple[Way, ...]:
        """The ways that hold the second operand as a weight of shape (n, k)."""
        if product.batched or not product.constant_b:
            return ()
        torch, ops = self.torch, self.torch.ops
        x, rows = torch.from_numpy(product.a), product.a.shape[0]
        weight = torch.from_numpy(np.ascontiguousarray(product.b.T))

        def linear() -> Run:
            return partial(torch.nn.functional.linear, x, weight)

        def onednn() -> Run:
            packed = ops.mkldnn._reorder_linear_weight(weight, None)
            return partial(ops.mkldnn._linear_pointwise, x, packed, None, "none", [], "")

        def mkl() -> Run:
            packed = ops.mkl._mkl_reorder_linear_weight(weight, rows)
            return partial(ops.mkl._mkl_linear, x, packed, weight, None, rows)

        def read(value: Any) -> Array:
            product.c[...] = value.numpy()
            return product.out

        ways = []
        for name, prepare in (("linear", linear), ("onednn", onednn), ("mkl", mkl)):
            try:
                run = prepare()
                run()
            except (RuntimeError, AttributeError, NotImplementedError):
                continue  # this build of torch lacks the library, or it refuses the shape
            ways.append(Way(f"torch.{name}", run, read))
        return tuple(ways)


def _keep(only: str, ways: tuple[Way, ...]) -> tuple[Way, ...]:
    return tuple(way for way in ways if only in ("", way.name))


PEERS: Mapping[str, tuple[str, ...]] = {
    "numpy": ("numpy.matmul", "numpy.einsum"),
    "torch": (
        "torch.mm",
        "torch.bmm",
        "torch.linear",
        "torch.onednn",
        "torch.mkl",
        "torch.einsum",
    ),
}
"""The peers, each with the ways to call it; a peer is measured by the fastest of its ways."""


@dataclass(frozen=True, slots=True)
class Peers:
    """The peers that were asked for.

    found     those that are installed
    missing   names of those that are not
    versions  of the packages of those found
    session   what their calls have to run in
    """

    found: tuple[Contender, ...]
    missing: tuple[str, ...]
    versions: tuple[str, ...]
    session: Callable[[], AbstractContextManager[object]]


def load_peers(names: Iterable[str]) -> Peers:
    """The peers of these names, such as ``torch`` (its fastest way) or ``torch.mm`` (that way).

    Raises DescribeError when a name is not known.
    """
    found: list[Contender] = []
    missing: list[str] = []
    versions: list[str] = []
    session: Callable[[], AbstractContextManager[object]] = nullcontext
    for name in dict.fromkeys(names):
        package = name.partition(".")[0]
        if name not in PEERS and name not in PEERS.get(package, ()):
            raise DescribeError(
                "sweep",
                f"there is no peer {name!r}",
                at=f"--against {name}",
                because=f"the peers are {', '.join(PEERS)}",
                help=tuple(f"{peer}, or one of {', '.join(ways)}" for peer, ways in PEERS.items()),
            )
        only = name if "." in name else ""
        if package == "numpy":
            found.append(Numpy(only))
            versions.append(f"numpy {np.__version__}")
        elif importlib.util.find_spec("torch") is None:
            missing.append(name)
        else:
            torch = importlib.import_module("torch")
            torch.set_num_threads(1)
            session = torch.inference_mode
            found.append(Torch(torch, only))
            versions.append(f"torch {torch.__version__}")
    return Peers(tuple(found), tuple(missing), tuple(dict.fromkeys(versions)), session)
