"""A schedule whose text was edited in whatever way is what runs, or is refused by the line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import offcut as oc
from offcut import Tensor, ops
from tests.agree import agree
from tests.facade import STRATEGIES, evaluate

n, b = oc.dim("n", max=64), oc.dim("b", max=5)
SIZES = (0, 1, 5, 16, 33)
NUMBERS = ("0", "1", "3", "7", "16", "2000", "999999999", "9" * 20)
# Lines that may stand anywhere, as far as their indentation says.
FOREIGN = (
    "separate 0",
    "separate 999999999",
    "bind * warp",
    "bind * thread",
    "bind * lane",
    "bind C.i thread",
    "bind C.i_tile thread",
    "bind C.j_in lane",
    "bind T.k lane tree",
    "split *.i balance 0 as a b",
    "split *.i residue 999999999 as a b",
    "split *.j (8, 4) as a b",
    "stage prepack W layout panels(0, 1, 0)",
    "stage prepack W layout panels(1, 1, 16)",
    "stage value factors for W as *()",
    "stage write W as *(j, i)",
    "stage value float32(A[i, k]) for W as *()",
    "at W C.i",
    "cover C vectors",
    "cover C at i_in vectors",
    "choose",
    "option a costs float64(zz)",
    "option a costs 1.0/0.0",
    "order C i",
    "order C j",
    "stage read W for C as P layout panels(0, 1, 16)",
    "split C.k ladder of 8 4 1 as a b",
    "split C.k ladder 16 then mask 8 as a b c",
    "split C.i ladder of 1 8 4 as a b",
    "split C.i ladder(4, 2) 14 as a b",
    "split C.j balance of 8 4 as a b",
    "split C.j ladder by i_in 7..6: 8, 7..9: 4 as a b",
    "split C.j balance 2000 as a b",
)
PROGRAM = """\
program two
size n in 0:65
input A: float32[n, 8]
local T: float32[n]
output C: float32[n, n]
for i in 0:n
  T[i] = 0.0
  for k in 0:8
    T[i] += A[i, k]
for i in 0:n
  for j in 0:n
    C[i, j] = where(i < j, T[i] * 2.0, T[j])
"""
CUTS = """\
schedule two
separate 4
split T.k balance 5 as k_tile k_in
split C.j ladder 24 then mask 6 as j_group j_tile j_in
bind * lane tree
bind * lane
"""


def given(name: str, *shape: object, dtype: str = "float32") -> Tensor:
    return oc.placeholder(shape, dtype, name)


def product(dtype: str = "float32") -> Tensor:
    return ops.matmul(given("A", n, 24, dtype=dtype), given("W", 24, 40, dtype=dtype))


def by_hand() -> oc.Program:
    C = product()
    made = oc.create_schedule(C)
    made[C].tile("i", "j", "k", 8, 8, 8)
    return made.lower()


def attention() -> Tensor:
    return ops.attention(given("Q", n, 8), given("K", n, 8), given("V", n, 8))


def constant() -> dict[str, Any]:
    W = np.random.default_rng(0).standard_normal((24, 40), dtype="float32")
    return {"constants": {"W": W}}


def in_cuts() -> dict[str, Any]:
    return {"schedule": oc.Schedule.parse(CUTS)}


# What is compiled, and with what besides.
CASES: dict[str, tuple[Callable[[], Tensor | oc.Program], Callable[[], dict[str, Any]]]] = {
    "packed": (product, dict),
    "constant": (product, constant),
    "bytes": (lambda: product("int8"), dict),
    "halves": (lambda: product("bfloat16"), dict),
    "batched": (lambda: ops.matmul(given("A", b, n, 24), given("W", b, 24, 40)), dict),
    "convolution": (
        lambda: ops.conv2d(given("X", b, 4, n, n), given("F", 5, 4, 3, 3), padding="same"),
        dict,
    ),
    "attention": (attention, dict),
    "program": (lambda: oc.parse(PROGRAM), dict),
    "cuts": (lambda: oc.parse(PROGRAM), in_cuts),
    "by hand": (by_hand, dict),
    "threads": (attention, lambda: {"threads": 2}),
}


def edits(text: str) -> Iterator[str]:
    """`text` with one line changed, left out, said twice, moved, or beside one that is not its own."""
    lines = text.rstrip().split("\n")
    for k, line in enumerate(lines):
        for changed in (None, f"{line}\n{line}", f"{line}\n  {line}", *_changed(line)):
            own = [] if changed is None else [changed]
            yield "\n".join([*lines[:k], *own, *lines[k + 1 :]])
        for other in range(k + 1, len(lines)):
            moved = [*lines[:k], lines[other], *lines[k:other], *lines[other + 1 :]]
            yield "\n".join(moved)
        indent = line[: len(line) - len(line.lstrip())]
        for foreign in FOREIGN:
            for deeper in ("", "  "):
                yield "\n".join([*lines[: k + 1], indent + deeper + foreign, *lines[k + 1 :]])


def _changed(line: str) -> Iterator[str]:
    for found in re.finditer(r"\d+", line):
        for number in NUMBERS:
            yield line[: found.start()] + number + line[found.end() :]
    words = line.split()
    indent = line[: len(line) - len(line.lstrip())]
    for one, other in combinations(range(1, len(words)), 2):
        swapped = list(words)
        swapped[one], swapped[other] = words[other], words[one]
        yield indent + " ".join(swapped)
    for found in re.finditer(r"(?<= )(ladder|balance|mask|mix)\b", line):
        for strategy in STRATEGIES:
            yield line[: found.start()] + str(strategy) + line[found.end() :]


def arrays(kernel: oc.Kernel, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    found = []
    for argument in kernel.signature.inputs:
        shape = [int(evaluate(extent, {"n": size, "b": 2})) for extent in argument.shape]
        dtype = ml_dtypes.bfloat16 if argument.dtype == "bfloat16" else argument.dtype
        found.append(rng.integers(-4, 5, shape).astype(dtype))
    return found


def check_edits(what: str, of: int, start: int) -> None:
    """Compile every `of`-th edit, from `start` on; run what is not refused."""
    make, options = CASES[what]
    output, more = make(), options()
    kernel = oc.compile(output, **more)
    more.pop("schedule", None)
    text = str(kernel.schedule)
    known = [(inputs, np.asarray(kernel(*inputs))) for inputs in (arrays(kernel, s) for s in SIZES)]
    wanted = [edit for edit in dict.fromkeys(edits(text)) if edit != text]
    for edit in wanted[start::of]:
        try:
            made = oc.compile(output, schedule=oc.Schedule.parse(edit), **more)
        except oc.OffcutError:
            continue
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}\n{edit}") from error
        for inputs, right in known:
            out = np.full_like(right, 77)
            made(*inputs, out=out)
            terms = np.abs(right.astype("float64")).max(initial=0)
            agree(out, right.astype("float64"), terms=terms, units=1000, what=edit)


# An edit of attention, which is five nests, takes seconds.
@pytest.mark.every(4)
@pytest.mark.parametrize("what", [what for what in CASES if CASES[what][0] is not attention])
def test_an_edited_schedule_gives_the_same_values_or_is_refused(what: str) -> None:
    check_edits(what, of=211, start=7)


@pytest.mark.slow
@pytest.mark.parametrize("what", CASES)
def test_any_edit_gives_the_same_values_or_is_refused(what: str) -> None:
    check_edits(what, of=7 if CASES[what][0] is attention else 1, start=0)
