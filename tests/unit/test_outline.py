"""Pieces of LLVM IR that are alike become one function, and compute what they did."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, c_int64

import pytest

from offcut.backends.cpu.machine import isa, jit
from offcut.backends.llvm import outline
from offcut.backends.llvm.ir import FunctionWriter
from offcut.backends.llvm.outline import Outliner
from offcut.errors import InternalError


def adds(f: FunctionWriter, base: str, place: int, factor: int, trips: int) -> None:
    """``base[place] += factor * i`` for each ``i < trips``, in as many lines as a tile has."""
    at = f.let(f"getelementptr i8, ptr {base}, i64 {8 * place}")
    with f.loop("0", str(trips)) as now:
        term = f.let(f"mul i64 {now}, {factor}")
        old = f.let(f"load i64, ptr {at}")
        for _ in range(outline.MIN_REPEATS):
            term = f.let(f"add i64 {term}, 0")
        f.do(f"store i64 {f.let(f'add i64 {old}, {term}')}, ptr {at}")


def written(*pieces: tuple[int, int, int]) -> str:
    """A module whose ``run(base)`` has these pieces, each `adds` with its own literals."""
    f, apart = FunctionWriter(), Outliner()
    for literals in pieces:
        with apart.piece(f):
            adds(f, "%base", *literals)
    f.do("ret void")
    apart.place(f)
    return "\n\n".join(
        [f"define void @run(ptr %base) {{\n{f.text()}\n}}", *apart.functions.values()]
    )


def run(text: str) -> list[int]:
    """What ``run`` makes of three zeros."""
    host = isa.host()
    loaded = jit.load([jit.object_code(text, host, passes=True)], host)
    values = (c_int64 * 3)()
    CFUNCTYPE(None, POINTER(c_int64))(loaded.address("run"))(values)
    return list(values)


@pytest.mark.parametrize(
    ("pieces", "calls", "wanted"),
    [
        (((0, 3, 4), (1, 5, 4), (2, 7, 4)), 3, [18, 30, 42]),
        (((0, 3, 4), (1, 3, 4)), 2, [18, 18, 0]),
        (((0, 3, 4), (1, 3, 5), (2, 3, 5)), 2, [18, 30, 30]),
        (((2, 3, 4),), 0, [0, 0, 18]),
    ],
    ids=["literals", "a literal in common", "other trips", "like no other"],
)
def test_pieces_that_differ_in_literals_alone_are_one_function(
    pieces: tuple[tuple[int, int, int], ...], calls: int, wanted: list[int]
) -> None:
    text = written(*pieces)
    assert text.count("define internal void @offcut_tile") == min(calls, 1)
    assert text.count("call void @offcut_tile0(") == calls
    assert run(text) == wanted
    if calls == 2 and len(pieces) == 2:
        assert ", 3\n" in text.split("@offcut_tile0(")[-1], "what all have in common stays"


@pytest.mark.parametrize(
    "line",
    [
        "switch i64 %x, label %other [ i64 {}, label %other ]",
        "%y = add <2 x i64> <i64 {}, i64 0>, splat (i64 1)",
        "%y = add <2 x i64> <i64 poison, i64 {}>, zeroinitializer",
        "%y = load i64, ptr getelementptr (i8, ptr @table, i64 {})",
        "%y = call <2 x i64> @llvm.vector.extract.v2i64(<4 x i64> zeroinitializer, i64 {})",
        "call void @llvm.lifetime.start(i64 {}, ptr null)",
        "%y = icmp slt i64 %x, {}",
        "",
    ],
)
def test_literals_that_must_be_literals_are_no_parameters_and_a_short_piece_no_function(
    line: str,
) -> None:
    f, apart = FunctionWriter(), Outliner()
    for value in (1, 2):
        with apart.piece(f):
            for number in range(outline.MIN_REPEATS if line else 0):
                f.let(f"add i64 %x, {number}")
            f.do(line.format(value) or "store i64 1, ptr %base")
            f.start("%other")
    apart.place(f)
    assert not apart.functions


def test_addresses_of_functions_and_tables_are_parameters_of_a_type_that_is_told() -> None:
    def placed(line: str, *names: str) -> tuple[FunctionWriter, Outliner]:
        f, apart = FunctionWriter(), Outliner()
        for name in names:
            with apart.piece(f):
                for number in range(outline.MIN_REPEATS):
                    f.let(f"add i64 %x, {number}")
                f.do(line.format(name))
        apart.place(f)
        return f, apart

    f, apart = placed("call void @{0}(ptr @table_{0}, i64 %x)", "one", "other")
    (text,) = apart.functions.values()
    assert "call void %l0(ptr %l1, i64 %v1)" in text
    assert "call void @offcut_tile0(i64 %x, ptr @other, ptr @table_other)" in f.lines[-1]
    with pytest.raises(InternalError, match="no type of %v"):
        placed("%y{0} = add <2 x i64> splat (i64 1), %v", "", "")


def doubles(f: FunctionWriter, base: str, place: int) -> None:
    """``base[place]`` doubled three times, in fewer lines than a tile has."""
    at = f.let(f"getelementptr i64, ptr {base}, i64 {place}")
    with f.loop("0", "3"):
        old = f.let(f"load i64, ptr {at}")
        f.do(f"store i64 {f.let(f'add i64 {old}, {old}')}, ptr {at}")


def apart_in_loops(*places: int) -> tuple[Outliner, str]:
    """Loops that double elements, each a piece of loops with two tiles inside, and the module that calls them."""
    f, apart = FunctionWriter(), Outliner()
    f.do("store i64 1, ptr %base")
    for place in places:
        with apart.piece(f, loops=True):
            doubles(f, "%base", place)
            for factor in (3, 5):
                with apart.piece(f):
                    adds(f, "%base", place + 1, factor, 4)
    f.do("ret void")
    apart.place(f)
    called = "\n".join(apart.declared)
    return apart, f"define void @run(ptr %base) {{\n{f.text()}\n}}\n{called}"


def test_loops_are_a_function_apart_with_the_functions_of_tiles_inside() -> None:
    apart, text = apart_in_loops(0)
    assert not apart.functions
    assert [name.rstrip("0123456789") for name in apart.loops] == ["@offcut_tile", "@offcut_loops"]
    assert text.count("call void @offcut_loops") == 1
    host = isa.host()
    code = jit.object_code(text, host, passes=True, loops="\n".join(apart.loops.values()))
    values = (c_int64 * 3)()
    loaded = jit.load([code], host)
    CFUNCTYPE(None, POINTER(c_int64))(loaded.address("run"))(values)
    assert list(values) == [8, 48, 0]
    alike, text = apart_in_loops(0, 1)
    assert sum(name.startswith("@offcut_loops") for name in alike.loops) == 1
    assert text.count("call void @offcut_loops") == 2


@pytest.mark.parametrize(("alone", "said"), [(("%a", "%b"), True), (("%a",), False)])
def test_memory_that_every_piece_has_alone_is_said_to_be_no_other(
    alone: tuple[str, ...], said: bool
) -> None:
    f, apart = FunctionWriter(), Outliner(dict.fromkeys(alone, 8))
    for base in ("%a", "%b"):
        with apart.piece(f, loops=True):
            adds(f, base, 0, 3, 4)
    apart.place(f)
    (text,) = apart.loops.values()
    assert ("ptr noalias writable dereferenceable(8) %" in text) is said


def test_loops_with_other_tiles_inside_are_other_functions() -> None:
    """The functions of tiles are known among loops alone: no address of one is given from outside."""
    f, apart = FunctionWriter(), Outliner()
    for trips in (4, 4, 6, 6):
        with apart.piece(f, loops=True):
            doubles(f, "%base", 0)
            with apart.piece(f):
                adds(f, "%base", 1, 3, trips)
    apart.place(f)
    assert sum(name.startswith("@offcut_tile") for name in apart.loops) == 2
    assert sum(name.startswith("@offcut_loops") for name in apart.loops) == 2
    assert not any("@offcut_tile" in line for line in f.lines)


@pytest.mark.parametrize(("outer", "inner"), [(True, True), (False, True), (False, False)])
def test_loops_inside_loops_or_a_tile_and_a_tile_inside_another_are_refused(
    outer: bool, inner: bool
) -> None:
    f, apart = FunctionWriter(), Outliner()
    with pytest.raises(InternalError, match="a piece of code inside another"):  # noqa: SIM117
        with apart.piece(f, loops=outer), apart.piece(f, loops=inner):
            pass
    assert f.lines == []


def test_what_is_computed_on_every_way_is_not_computed_again() -> None:
    f = FunctionWriter()
    first = f.let("mul i64 %x, 24")
    assert f.let("mul i64 %x, 24") == first
    with f.loop("0", "%n"):
        assert f.let("mul i64 %x, 24") == first
        inside = f.let("mul i64 %x, 48")
    assert f.let("mul i64 %x, 48") != inside
    with f.when("%c"):
        sometimes = f.let("add i64 %x, 5")
    assert f.let("add i64 %x, 5") != sometimes
    assert f.let("load i64, ptr %base") != f.let("load i64, ptr %base")
    assert f.let("call i64 @next()") != f.let("call i64 @next()")
    g = FunctionWriter()
    g.begin()
    with g.ahead():
        first = g.let("mul i64 %x, 24")
    with g.ahead():
        assert g.let("mul i64 %x, 24") == first
    assert len(g.instructions()) == 1
