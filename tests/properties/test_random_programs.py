"""Random loop programs, cut how they may be: refused with a reason, or equal to the source everywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import EQUAL, points, proved
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import offcut as oc
from offcut import Partition, Program
from offcut.errors import OffcutError
from offcut.ir import For, Store, walk
from offcut.partition import Piece

Array = npt.NDArray[np.int32]

ALL = (
    *("exact", "guard", "cut", "mask", "pad", "shift", "ladder"),
    *("balance", "even", "residue", "version", "mix"),
)
KEEP_ORDER = ("guard", "cut", "mask", "ladder", "balance", "even", "residue", "version", "mix")
SIZES = ((0, 0), (1, 0), (1, 3), (2, 5), (4, 1), (5, 4), (7, 6))
MARGIN = 3  # every coordinate lies in -3 : n + m + 6
EXTENT = "n + m + 12"
HEAD = f"""\
program drawn
size n in 0:60
size m in 0:60
input X: int32[{EXTENT}]
input Y: int32[{EXTENT}, {EXTENT}]
inout A: int32[{EXTENT}]
inout B: int32[{EXTENT}, {EXTENT}]
inout C: int32[{EXTENT}]
local L: int32[{EXTENT}]
for p in 0:{EXTENT}
  L[p] = X[p] + int32(p)
"""
RANKS = {"X": 1, "Y": 2, "A": 1, "B": 2, "C": 1, "L": 1}


@dataclass(frozen=True)
class Drawn:
    """A program, and how it is to be cut."""

    text: str
    tile: Mapping[str, int | tuple[int, ...]]
    tail: Mapping[str, str]


class Nest:
    """The text of one nest, drawn from the outside in; `names` are the loops around."""

    def __init__(self, draw: st.DrawFn, names: tuple[str, ...], written: tuple[str, ...]) -> None:
        self.draw, self.free, self.written = draw, list(names), written
        self.around: list[str] = []

    def pick(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def loop(self, indent: str) -> list[str]:
        name = self.free.pop(0)
        lo, hi = self.lower(), self.upper()
        step = self.pick("", "", "", "", ":2", ":3")
        lines = [f"{indent}for {name} in {lo}:{hi}{step}"]
        self.around.append(name)
        lines += self.block(indent + "  ")
        self.around.pop()
        return lines

    def lower(self) -> str:
        choices = ["0", "0", "0", "1", "2"]
        for x in self.around:
            choices += [x, f"{x} + 1", f"max(0, {x} - 2)", f"max(1, {x} - 1)", f"{x}//2"]
        return self.pick(*choices)

    def upper(self) -> str:
        choices = ["n", "n", "m", "m", "n - 1", "n + 1", "3", "5", "min(n, m)", "(n + m)//2"]
        for x in self.around:
            choices += [x, f"{x} + 1", f"min(n, {x} + 2)", f"n - {x}", f"min(m, {x} + 3)"]
        return self.pick(*choices)

    def block(self, indent: str) -> list[str]:
        lines: list[str] = []
        for _ in range(self.draw(st.sampled_from((1, 1, 1, 2)))):
            what = self.pick("loop", "loop", "store", "store", "if")
            if what == "loop" and self.free:
                lines += self.loop(indent)
            elif what == "if":
                lines += [f"{indent}if {self.condition()}", self.store(indent + "  ")]
                if self.draw(st.integers(0, 3)) == 0:
                    lines += [f"{indent}else", self.store(indent + "  ")]
            else:
                lines.append(self.store(indent))
        return lines

    def comparison(self) -> str:
        x, y = self.pick(*self.around), self.pick(*self.around, "n", "m")
        return self.pick(
            f"{x} >= 1",
            f"{x} < n - 1",
            f"{x} == 2",
            f"{x} != 0",
            f"{x} + {y} < m",
            f"{x} <= {y}",
            f"{x} == {y}",
            f"2*{x} < n + 1",
            f"{x} % 2 == 0",
            f"({x} + {y}) % 3 == 1",
            f"{x}//2 < {y}",
            "n < m",
            f"n*{x} < {y} + 4",
            f"X[{x} + {MARGIN}] > 0",
        )

    def condition(self) -> str:
        a, b = self.comparison(), self.comparison()
        return self.pick(a, a, a, f"{a} and {b}", f"{a} or {b}", f"not {a}")

    def index(self) -> str:
        x = self.pick(*self.around)
        return self.pick(
            *(f"{x} + {MARGIN + shift}" for shift in (0, 0, 0, 1, -1, 2)),
            f"max(0, {x} - 1)",
            f"min({x}, m) + {MARGIN}",
            f"{x}//2 + {MARGIN}",
            f"{x} % 4 + 1",
            "2",
        )

    def access(self, buffer: str) -> str:
        return f"{buffer}[{', '.join(self.index() for _ in range(RANKS[buffer]))}]"

    def value(self) -> str:
        a = self.access(self.pick("X", "Y", "A", "B", "L"))
        b = self.access(self.pick("X", "Y", "X", "C"))
        return self.pick(
            a,
            f"{a} + {b}",
            f"{a} * {b}",
            f"{a} - int32({self.pick(*self.around)})",
            f"where({self.condition()}, {a}, {b})",
            f"where({self.condition()}, {a} * {b}, 0)",
        )

    def store(self, indent: str) -> str:
        target = self.access(self.pick(*self.written))
        op = self.pick("=", "=", "+=", "+=", "max=", "min=")
        return f"{indent}{target} {op} {self.value()}"


@st.composite
def programs(draw: st.DrawFn) -> str:
    """1 to 3 nests of depth 1 to 3."""
    lines: list[str] = []
    for number in range(draw(st.sampled_from((1, 1, 2, 3)))):
        names = ("i", "j", "k") if draw(st.booleans()) else tuple(f"{x}{number}" for x in "ijk")
        depth = draw(st.integers(1, 3))
        written = draw(st.sampled_from((("A",), ("B",), ("C",), ("A", "B"), ("B", "C"))))
        lines += Nest(draw, names[:depth], written).loop("")
    return HEAD + "\n".join(lines) + "\n"


def names_of_loops(program: Program) -> list[str]:
    """A name for each loop, as `tile` takes it."""
    loops = [stmt for stmt in walk(program.body) if isinstance(stmt, For)]
    single = [loop.iter for loop in loops]
    found: dict[str, None] = {}
    for loop in loops:
        if single.count(loop.iter) == 1:
            found[loop.iter] = None
        else:
            written = (s.buffer for s in walk(loop.body) if isinstance(s, Store))
            found |= dict.fromkeys(f"{buffer}.{loop.iter}" for buffer in written)
    return list(found)


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """A program, with tiles and strategies for some of its loops."""
    text = draw(programs())
    loops = names_of_loops(oc.parse(text))
    chosen = [name for name in loops if draw(st.booleans())]
    sizes = st.one_of(st.integers(1, 5), st.sampled_from(((4, 2), (6, 3), (4, 1))))
    tile = {name: draw(sizes) for name in chosen}
    return Drawn(text, tile, {name: draw(st.sampled_from(ALL)) for name in chosen})


class Memory:
    """A buffer as plain Python reads it: outside of it, nothing (0)."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, at: Any) -> int:
        index = at if isinstance(at, tuple) else (at,)
        inside = all(0 <= x < n for x, n in zip(index, self.array.shape, strict=True))
        return int(self.array[index]) if inside else 0

    def __setitem__(self, at: Any, value: int) -> None:
        self.array[at] = wrapped(value)


def wrapped(value: int) -> int:
    """`value` as an int32."""
    return (value + 2**31) % 2**32 - 2**31


def in_python(text: str) -> str:
    """The statements of a program as Python; nothing of offcut takes part."""
    lines: list[str] = []
    for line in text.splitlines():
        if re.match(r"program|size|input|inout|local", line):
            continue
        line = re.sub(r"\bfor (\w+) in ([^:]+):([^:]+?)(?::(\d))?$", _range, line)
        line = re.sub(r"^(\s*)(if .*|else)$", r"\1\2:", line)
        line = re.sub(r"^(\s*)(\w+\[.*?\]) (max|min)= (.*)$", r"\1\2 = \3(\2, wrapped(\4))", line)
        lines.append(line)
    return "\n".join(lines)


def _range(found: re.Match[str]) -> str:
    return f"for {found[1]} in range({found[2]}, {found[3]}, {found[4] or 1}):"


def expected(text: str, given: Mapping[str, Array], sizes: Mapping[str, int]) -> list[Array]:
    """A, B and C after the program has run, one statement after the other."""
    buffers = {name: Memory(array.copy()) for name, array in given.items()}
    buffers["L"] = Memory(np.zeros(sizes["n"] + sizes["m"] + 12, np.int32))
    names: dict[str, Any] = {**buffers, **sizes, "wrapped": wrapped, "int32": int}
    names["where"] = lambda condition, then, other: then if condition else other
    exec(in_python(text), names)
    return [buffers[name].array for name in "ABC"]


def arrays(sizes: Mapping[str, int]) -> dict[str, Array]:
    """Small numbers, always the same."""
    rng, extent = np.random.default_rng(sum(sizes.values())), sizes["n"] + sizes["m"] + 12
    return {
        name: rng.integers(-9, 10, (extent,) * rank, np.int32)
        for name, rank in RANKS.items()
        if name != "L"
    }


def check(one: Drawn) -> Partition | None:
    """All that must hold of a drawn cut; the partition, or None where it is refused."""
    source = oc.parse(one.text)
    try:
        cut = oc.partition(source, tile=one.tile, tail=one.tail)
    except OffcutError as error:
        refused = error
    else:
        return checked(source, cut, one)
    assert refused.because, str(refused)
    assert not is_always_legal(one), str(refused)
    return None


def checked(source: Program, cut: Partition, one: Drawn) -> Partition:
    """`cut`, which is proved, read back as it prints, and computes what `source` does."""
    assert proved(cut) >= EQUAL
    assert oc.parse(str(cut)) == cut.loops
    assert cut.explain().startswith(f"{source.name}: ")
    for n, m in SIZES:
        sizes = {"n": n, "m": m}
        given = arrays(sizes)
        found, plain = cut.run(given, **sizes), source.run(given, **sizes)
        for mine, theirs, brute in zip(found, plain, expected(one.text, given, sizes), strict=True):
            np.testing.assert_array_equal(theirs, brute)
            np.testing.assert_array_equal(mine, brute)
    return cut


def is_always_legal(one: Drawn) -> bool:
    """Whether it keeps the order of all instances, and repeats and groups none."""
    alone = len(one.tile) <= 1
    return alone and all(tail in KEEP_ORDER for tail in one.tail.values())


FAST = settings(
    max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
SLOW = settings(FAST, max_examples=400, derandomize=False)


def share_that_is_cut(how: settings) -> float:
    """Of the programs drawn, those that are not refused; each that is cut is checked."""
    outcomes: list[bool] = []

    @given(drawn())
    @how
    def each(one: Drawn) -> None:
        outcomes.append(check(one) is not None)

    each()
    return sum(outcomes) / len(outcomes)


def test_a_cut_program_is_refused_or_computes_the_same() -> None:
    assert share_that_is_cut(FAST) >= 0.6


@pytest.mark.slow
def test_many_cut_programs_are_refused_or_compute_the_same() -> None:
    assert share_that_is_cut(SLOW) >= 0.5


@st.composite
def single(draw: st.DrawFn) -> Drawn:
    """A nest of one statement, each of its instances with an element of its own, all loops cut."""
    nest = Nest(draw, (), ())
    lines: list[str] = []
    for name in "ij"[: draw(st.integers(1, 2))]:
        lines.append(f"{'  ' * len(nest.around)}for {name} in {nest.lower()}:{nest.upper()}")
        nest.around.append(name)
    index = ", ".join(f"{name} + {MARGIN}" for name in nest.around)
    buffer = "AB"[len(nest.around) - 1]
    lines.append(f"{'  ' * len(nest.around)}{buffer}[{index}] = X[i + {MARGIN}]")
    tile = {name: draw(st.integers(1, 5)) for name in nest.around}
    tails = [tail for tail in ALL if tail not in ("exact", "mix")]
    tail = {name: draw(st.sampled_from(tails)) for name in nest.around}
    return Drawn(HEAD + "\n".join(lines) + "\n", tile, tail)


def executed(text: str, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The instances of the one statement of the last nest, as Python runs it."""
    loops = in_python(text).splitlines()[2:-1]
    names = [line.split()[1] for line in loops]
    found: list[tuple[int, ...]] = []
    last = f"{'  ' * len(loops)}found.append(({', '.join(names)},))"
    exec("\n".join([*loops, last]), {**sizes, "found": found})
    return found


@given(single())
@FAST
def test_pieces_are_disjoint_and_cover_the_instances(one: Drawn) -> None:
    cut = check(one)
    if cut is None:
        event("refused")
        return
    for n, m in SIZES:
        owned: list[tuple[int, ...]] = []
        for piece in cut.pieces:
            assert isinstance(piece, Piece)
            assert piece.axes == tuple(one.tile)
            owned += points(piece.owned, n, m)
        assert sorted(owned) == executed(one.text, {"n": n, "m": m})
