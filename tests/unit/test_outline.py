"""Pieces of LLVM IR that are alike become one function, and compute what they did."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, c_int64

import pytest

from offcut.backends.cpu.machine import isa, jit
from offcut.backends.llvm import outline
from offcut.backends.llvm.ir import Function
from offcut.backends.llvm.outline import Outline
from offcut.errors import InternalError


def adds(f: Function, base: str, place: int, factor: int, trips: int) -> None:
    """``base[place] += factor * i`` for each ``i < trips``, in as many lines as a tile has."""
    at = f.let(f"getelementptr i8, ptr {base}, i64 {8 * place}")
    with f.loop("0", str(trips)) as now:
        term = f.let(f"mul i64 {now}, {factor}")
        old = f.let(f"load i64, ptr {at}")
        for _ in range(outline.FEW):
            term = f.let(f"add i64 {term}, 0")
        f.do(f"store i64 {f.let(f'add i64 {old}, {term}')}, ptr {at}")


def written(*pieces: tuple[int, int, int]) -> str:
    """A module whose ``run(base)`` has these pieces, each `adds` with its own literals."""
    f, apart = Function(), Outline()
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


def test_pieces_that_differ_in_literals_are_one_function() -> None:
    text = written((0, 3, 4), (1, 5, 4), (2, 7, 4))
    assert text.count("define internal void @offcut_tile") == 1
    assert text.count("call void @offcut_tile0(") == 3
    assert run(text) == [18, 30, 42]


def test_a_literal_that_all_have_in_common_stays() -> None:
    text = written((0, 3, 4), (1, 3, 4))
    assert ", 3\n" in text.split("@offcut_tile0(")[-1]
    assert run(text) == [18, 18, 0]


def test_loops_of_other_trips_are_other_functions() -> None:
    text = written((0, 3, 4), (1, 3, 5), (2, 3, 5))
    assert text.count("define internal void @offcut_tile") == 1
    assert text.count("call void @offcut_tile0(") == 2
    assert run(text) == [18, 30, 30]


def test_a_piece_like_no_other_stays_where_it_was() -> None:
    text = written((2, 3, 4))
    assert "call" not in text
    assert run(text) == [0, 0, 18]


def test_a_short_piece_is_no_function() -> None:
    f, apart = Function(), Outline()
    for _ in range(2):
        with apart.piece(f):
            f.do("store i64 1, ptr %base")
    apart.place(f)
    assert not apart.functions
    assert f.lines == ["  store i64 1, ptr %base"] * 2


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
    ],
)
def test_literals_that_must_be_literals_are_no_parameters(line: str) -> None:
    f, apart = Function(), Outline()
    for value in (1, 2):
        with apart.piece(f):
            for _ in range(outline.FEW):
                f.let("add i64 %x, 1")
            f.do(line.format(value))
            f.start("%other")
    apart.place(f)
    assert not apart.functions


def test_addresses_of_functions_and_tables_are_parameters() -> None:
    f, apart = Function(), Outline()
    for name in ("one", "other"):
        with apart.piece(f):
            for _ in range(outline.FEW):
                f.let("add i64 %x, 1")
            f.do(f"call void @{name}(ptr @table_{name}, i64 %x)")
    apart.place(f)
    (text,) = apart.functions.values()
    assert "call void %l0(ptr %l1, i64 %v1)" in text
    assert "call void @offcut_tile0(i64 %x, ptr @other, ptr @table_other)" in f.lines[-1]


def test_a_piece_inside_a_piece_is_refused() -> None:
    f, apart = Function(), Outline()

    def nested() -> None:
        with apart.piece(f), apart.piece(f):
            pass

    with pytest.raises(InternalError, match="a piece of code inside another"):
        nested()
    assert f.lines == []


def test_a_value_whose_type_is_not_told_is_refused() -> None:
    def written(f: Function, apart: Outline) -> None:
        with apart.piece(f):
            for _ in range(outline.FEW):
                f.let("add <2 x i64> splat (i64 3), %v")

    with pytest.raises(InternalError, match="no type of %v"):
        written(Function(), Outline())
