"""Schedules of the policy, edited: each runs right, or is refused in words before a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from conftest import slow

import offcut as oc
from offcut.backends.decide import attempt
from offcut.schedule.decisions import Choose

HALF = ml_dtypes.bfloat16


class Base(NamedTuple):
    """A described result with its schedule, and what it is of arrays.

    draw   from a generator and a number of rows to arrays
    exact  from arrays to the result in float64, which rounding moves by `units` of the types' step
    """

    result: oc.Tensor
    inputs: list[oc.Tensor]
    target: oc.Target
    draw: Callable[[np.random.Generator, int], list[np.ndarray]]
    exact: Callable[..., np.ndarray]
    error: float = 0.0

    def compiled(self, lines: Sequence[str]) -> oc.Kernel:
        """Return the kernel of a schedule."""
        schedule = oc.Schedule.parse("\n".join(lines))
        return oc.compile(self.result, inputs=self.inputs, target=self.target, schedule=schedule)


def there(machine: str) -> oc.Target:
    return oc.target("cuda", machine=machine, device="emulated")


def dense(machine: str, depth: int, columns: int) -> Base:
    """A product and what follows it element by element."""
    n = oc.dim("n", max=100)
    a = oc.placeholder((n, depth), "bfloat16", name="A")
    w = oc.placeholder((depth, columns), "bfloat16", name="W")
    k = oc.reduce_axis(depth, name="k")
    s = oc.compute(
        (n, columns),
        lambda i, j: oc.sum(a[i, k].astype("float32") * w[k, j].astype("float32"), axis=k),
        name="S",
    )
    c = oc.compute((n, columns), lambda i, j: oc.maximum(s[i, j], 0.0), name="C")

    def draw(rng: np.random.Generator, rows: int) -> list[np.ndarray]:
        shapes = ((rows, depth), (depth, columns))
        return [rng.integers(-3, 4, shape).astype(HALF) for shape in shapes]

    def exact(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.maximum(x.astype("float64") @ y.astype("float64"), 0)

    return Base(c, [a, w], there(machine), draw, exact)


def batched() -> Base:
    """Products of several matrices, to which nothing follows."""
    n, k = oc.dim("n", max=100), oc.reduce_axis(24, name="k")
    x, y = oc.placeholder((3, n, 24), "float16", "X"), oc.placeholder((3, 24, 40), "float16", "Y")
    s = oc.compute(
        (3, n, 40),
        lambda h, i, j: oc.sum(x[h, i, k].astype("float32") * y[h, k, j].astype("float32"), axis=k),
        name="S",
    )

    def draw(rng: np.random.Generator, rows: int) -> list[np.ndarray]:
        return [
            rng.integers(-3, 4, shape).astype("float16") for shape in ((3, rows, 24), (3, 24, 40))
        ]

    def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a.astype("float64") @ b.astype("float64")

    return Base(s, [x, y], there("h200"), draw, exact)


def of_rows(op: str) -> Base:
    """Rows of 70 elements on lanes."""
    a = oc.placeholder((oc.dim("n", max=100), 70), "float32", name="A")

    def draw(rng: np.random.Generator, rows: int) -> list[np.ndarray]:
        return [rng.normal(size=(rows, 70)).astype("float32")]

    def exact(x: np.ndarray) -> np.ndarray:
        x = x.astype("float64")
        if op == "softmax":
            return np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    return Base(getattr(oc.ops, op)(a), [a], there("h200"), draw, exact, 2.0**-18)


BASES: dict[str, Callable[[], Base]] = {
    "cells": lambda: dense("a100", 40, 24),
    "groups": lambda: dense("h200", 72, 40),
    "rows": lambda: dense("a100", 37, 13),
    "batched": batched,
    "softmax": lambda: of_rows("softmax"),
    "layernorm": lambda: of_rows("layernorm"),
}


@cache
def base(name: str) -> tuple[Base, tuple[str, ...]]:
    """A base, and the lines of the schedule of its policy; of the first of its options, if it has several."""
    one = BASES[name]()
    schedule = oc.compile(one.result, inputs=one.inputs, target=one.target).schedule
    (first, *_) = schedule.steps
    if isinstance(first, Choose):
        schedule = oc.Schedule(schedule.name, first.options[0].steps)
    return one, tuple(str(schedule).splitlines())


WORDS = {
    # of a line, by its first word: the words that are put in place of its third, or of its fourth
    "bind": (2, ("block", "warp", "warpgroup", "load", "lane", "store", "unroll", "thread")),
    "split": (3, tuple(map(str, (0, 1, 3, 7, 8, 16, 17, 24, 32, 48, 64, 96, 256)))),
    "strategy": (2, ("guard", "mask", "cut", "pad", "shift", "exact", "ladder", "balance", "even", "residue")),
    "cover": (-1, (
        *("mma_m16n8k16_shared_bfloat16", "wgmma_m64nNk16_kn_bfloat16", "fma_shared_float32"),
        *("copy_rows_bfloat16", "cp_async_rows_bfloat16", "tma_load_2d_bfloat16", "ldmatrix_x4_bfloat16"),
    )),
}  # fmt: skip


def edited(rng: Random, lines: Sequence[str]) -> list[str]:
    """The lines of a schedule, of which one is dropped, said twice, moved, exchanged with another one, or changed in one word."""
    lines = [*lines]
    at, other = rng.randrange(1, len(lines)), rng.randrange(1, len(lines))
    words = lines[at].split()
    kind = rng.choice(["split", "strategy"]) if words[0] == "split" else words[0]
    match rng.choice(["drop", "twice", "move", "exchange", *["word"] * 4]):
        case "drop":
            del lines[at]
        case "twice":
            lines.insert(other, lines[at])
        case "move":
            lines.insert(other, lines.pop(at))
        case "exchange":
            lines[at], lines[other] = lines[other], lines[at]
        case _ if kind in WORDS:
            place, choices = WORDS[kind]
            words[place] = rng.choice(choices)
            lines[at] = " ".join(words)
        case _ if kind == "order":
            rest = words[2:]
            rng.shuffle(rest)
            lines[at] = " ".join([*words[:2], *rest])
        case _ if kind == "at":
            memory, is_deep = (
                rng.choice([" in registers", " in shared", ""]),
                " depth " in lines[at],
            )
            depth = f" depth {rng.choice([1, 2, 3, 64])}" if is_deep and memory else ""
            lines[at] = lines[at].partition(" in ")[0] + memory + depth
        case _ if kind == "stage":
            lines[at] = lines[at].partition(" in shared")[0] + rng.choice(
                ["", " in registers", " in shared"]
            )
        case _:
            del lines[at]
    return lines


FAST = (0, 1, 4)


@pytest.mark.parametrize("seed", [one if one in FAST else slow(one) for one in range(60)])
def test_an_edited_schedule_runs_right_or_is_refused_in_words(seed: int) -> None:
    one, lines = base([*BASES][seed % len(BASES)])
    changed = edited(Random(seed), lines)
    kernel = attempt(lambda: one.compiled(changed), oc.OffcutError)
    if isinstance(kernel, oc.OffcutError):
        assert not isinstance(kernel, oc.CallError | oc.InternalError)
        assert kernel.because
        return
    for n in (0, 1, 65):
        arrays = one.draw(np.random.default_rng([seed, n]), n)
        exact = one.exact(*arrays)
        error = np.abs(np.asarray(kernel(*arrays)).astype("float64") - exact)
        assert (error <= one.error * (1 + np.abs(exact))).all()


REFUSED = {
    "registers of another warp": (
        "split C.i_in guard 16 as",
        "split C.i_in guard 32 as",
        """\
sync: cannot keep the order of C on units that run side by side
  at       line 6: order C i_block j_block i_in j_in
  because  with n = 17, it touches what `tile i in 64*i_block + 16*i_warp +: min(16, n - 64*i_block - 16*i_warp), j in 0 +: 24  @cover(zero_accumulators)` at i_block = 0, i_warp = 1 touches, in registers of another warp
  help     loops over the same elements, bound to the same unit
  help     a window in a memory that they share""",
    ),
    "a warp around blocks": (
        "order C i_block j_block i_in j_in",
        "order C i_in i_block j_block j_in",
        """\
compile: cannot run loop i_block on block
  at       line 14: bind C.i_block block
  because  the loop i_warp_out around it is on warp, which has no block of its own
  help     i_warp_out on a unit before block: block, warpgroup, warp, lane""",
    ),
    "cells": (
        "split S.k guard 32 as",
        "split S.k guard 17 as",
        """\
compile: cannot copy cells of 16 bytes of A
  at       line 18: cover A_in at i cp_async_rows_bfloat16
  because  its rows begin at element 17*k_stage, which is not known to be a multiple of 8
  help     tiles of multiples of 8 elements
  help     copy_rows, which moves element by element""",
    ),
    "nesting": (
        "bind C.i_block block",
        "bind C.i_block warp",
        """\
compile: cannot run loop i_warp on warp
  at       line 17: bind S.i_warp warp
  because  the loop i_block around it is on warp, which has no warp of its own
  help     i_block on a unit before warp: block, warpgroup, warp, lane""",
    ),
    "no window": (
        "at W_in S.k_stage in shared depth 4",
        "# nowhere",
        """\
compile: cannot keep W_in in shared
  at       line 3: stage read W for S as W_in in shared
  because  it is not a window there: what shared holds is of one block, and gone when that ends
  help     at W_in … in shared: a window inside of a loop of its reader""",
    ),
    "threads": (
        "split C.i guard 64 as",
        "split C.i guard 1024 as",
        """\
compile: cannot launch C
  at       line 14: bind C.i_block block
  because  a block has 1024 threads at most, and its warps and load units take 2080
  help     tiles of fewer warps
  help     a loop over blocks around""",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_block_cannot_run_is_refused_by_its_line(what: str) -> None:
    old, new, expected = REFUSED[what]
    cells, before = base("cells")
    lines = [line.replace(old, new) for line in before]
    assert lines != [*before]
    with pytest.raises(oc.OffcutError) as refused:
        cells.compiled(lines)
    assert str(refused.value) == expected
