"""What is no microkernel, in words."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import pytest
from conftest import rejection

import offcut as oc
from offcut import Microkernel
from offcut.core.layout import Digit, Layout
from offcut.errors import DescribeError
from tests.facade import Place, TileShape, family_of, multiples


def product(depth: int | None = None) -> oc.Tensor:
    m, n = oc.dim("m", min=1, max=4), oc.dim("n", min=1, max=4)
    k = oc.dim("k") if depth is None else depth
    p = oc.reduce_axis(k, name="p")
    a, b = oc.placeholder((m, k), name="A"), oc.placeholder((k, n), name="B")
    return oc.compute((m, n), lambda i, j: oc.sum(a[i, p] * b[p, j], axis=p), name="C")


def copied() -> oc.Tensor:
    m, n = oc.dim("m", min=1, max=4), oc.dim("n", min=1, max=4)
    a = oc.placeholder((m, n), name="A")
    return oc.compute((m, n), lambda i, j: a[i, j], name="C")


GIVEN: dict[str, Any] = {
    "name": "unit",
    "computes": product(),
    "tiles": (TileShape((4, 4), 4.0, 4.0),),
}

HAS_AXES = "\n  help     it has i, j, p"

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no tensor": ({"computes": 3}, "it computes 3, and no tensor that compute defines"),
    "a predicate along no axis": (
        {"predicates": {"i", "zz"}},
        "its predicates have zz, which is not an axis of it" + HAS_AXES,
    ),
    "bounds of no axis": (
        {"bounds": {"q": 3}},
        "its bounds have q, which is not an axis of it" + HAS_AXES,
    ),
    "a repeat of no axis": (
        {"repeats": {"q"}},
        "its repeats have q, which is not an axis of it" + HAS_AXES,
    ),
    "an operand that it has not": (
        {"operands": {"W": Place()}},
        "its operands have W, which is not an operand of it\n  help     it has A, B, C",
    ),
    "no tiles": ({"tiles": ()}, "it has no tiles"),
    "a tile of no rows": (
        {"tiles": (TileShape((0, 4), 4.0, 4.0),)},
        "TileShape(extents=(0, 4), cycles=4.0, startup=4.0) has no instances, or takes no time that there is",
    ),
    "cycles that are no number": (
        {"tiles": (TileShape((4, 4), nan, 4.0),)},
        "TileShape(extents=(4, 4), cycles=nan, startup=4.0) has no instances, or takes no time that there is",
    ),
    "a tile of another rank": (
        {"tiles": (TileShape((4,), 4.0, 4.0),)},
        "TileShape(extents=(4,), cycles=4.0, startup=4.0) has 1 extents, and its result 2 axes",
    ),
    "no tile": (
        {"tiles": (4,)},
        "4 is not a tile\n  help     TileShape((4, 8), cycles=4.0, startup=4.0)",
    ),
    "extents that are none": (
        {"bounds": {"i": (3, 1)}},
        "no extent of i is from 3 to 1",
    ),
    "extents in words": (
        {"bounds": {"i": "4"}},
        "the extents of i are '4'\n  help     bounds={'i': (1, 14)}\n  help     bounds={'i': multiples(16)}",
    ),
    "another way to accumulate": (
        {"accumulate": "maybe"},
        "accumulate is 'maybe'\n  help     accumulate='fresh'\n  help     accumulate='adds'\n"
        "  help     accumulate='both'",
    ),
    "an issue that there is not": (
        {"issue": "later"},
        "issue is 'later'\n  help     issue='sync'\n  help     issue='async'",
    ),
    "a wait that there is not": (
        {"wait": "bell"},
        "wait is 'bell'\n  help     wait=None\n  help     wait='group'\n  help     wait='token'",
    ),
    "no place": (
        {"operands": {"A": "shared"}},
        "A lies in 'shared'\n  help     operands={'A': Place()}",
    ),
    "a memory that is no tuple": (
        {"operands": {"A": Place("shared")}},
        "the memories of A are 'shared'\n  help     memories=('shared',)",
    ),
    "another form of an operand": (
        {"operands": {"A": Place(by="mail")}},
        "A is handed over by 'mail'\n  help     by='plain'\n  help     by='fragment'\n"
        "  help     by='descriptor'\n  help     by='immediate'",
    ),
    "side by side along no axis": (
        {"operands": {"A": Place(beside="q")}},
        "A lies side by side along q, which is not an axis of it",
    ),
    "a layout of another rank": (
        {"operands": {"A": Place(layout=Layout((("word", (Digit(0, 1, None, 1),)),), (4,)))}},
        "A has 2 axes, and its layout 1",
    ),
    "a tile longer than its axis": (
        {"tiles": (TileShape((4, 4), 4.0, 4.0), TileShape((5, 4), 4.0, 4.0))},
        "TileShape(extents=(5, 4), cycles=4.0, startup=4.0) has 5 along i, and it computes from 1 to 4"
        "\n  help     TileShape of from 1 to 4 along i",
    ),
    "a negative extent": (
        {"tiles": (TileShape((-1, 4), 4.0, 4.0),)},
        "TileShape(extents=(-1, 4), cycles=4.0, startup=4.0) has no instances, or takes no time that there is",
    ),
    "an extent that is no int": (
        {"tiles": (TileShape((2.0, 4), 4.0, 4.0),)},  # type: ignore[arg-type]
        "TileShape(extents=(2.0, 4), cycles=4.0, startup=4.0) has no instances, or takes no time that there is",
    ),
    "bounds beyond its tiles": (
        {"bounds": {"i": (1, 8)}},
        "its bounds have from 1 to 8 along i, and its longest tile has 4"
        "\n  help     bounds={'i': (1, 4)}\n  help     repeats={'i'}",
    ),
    "bounds of nothing": ({"bounds": {"p": 0}}, "no extent of p is 0"),
    "bounds below nothing": ({"bounds": {"p": (-1, 4)}}, "no extent of p is from -1 to 4"),
    "bounds that are true": (
        {"bounds": {"i": True}},
        "the extents of i are True\n  help     bounds={'i': (1, 14)}\n  help     bounds={'i': multiples(16)}",
    ),
    "bounds beyond a literal axis": (
        {"computes": product(16), "bounds": {"p": (1, 17)}},
        "its bounds have from 1 to 17 along p, and it computes 16"
        "\n  help     bounds={'p': (1, 16)}\n  help     repeats={'p'}",
    ),
    "bounds of longer groups than its axis": (
        {"computes": product(16), "bounds": {"p": multiples(32)}},
        "its bounds have at least 32, multiples of 32 along p, and it computes 16"
        "\n  help     bounds={'p': (16, 16)}\n  help     repeats={'p'}",
    ),
    "an axis in words": ({"predicates": "ij"}, "its predicates are 'ij'" + HAS_AXES),
    "repeats that are a number": ({"repeats": 3}, "its repeats are 3" + HAS_AXES),
    "a reset of no reduction": (
        {"computes": copied(), "reset": "zero"},
        "its reset is zero, and it reduces nothing\n  help     reset=None",
    ),
    "an update of no reduction": (
        {"computes": copied(), "update": "add"},
        "its update is add, and it reduces nothing\n  help     update=None",
    ),
    "a reset that is the whole": (
        {"reset": "unit"},
        "its reset and what it starts have one name, unit",
    ),
    "an update that never adds": (
        {"update": "add", "accumulate": "fresh"},
        "its update is add, and accumulate is 'fresh': it never adds"
        "\n  help     accumulate='both'\n  help     update=None",
    ),
    "a reset that no text can say": (
        {"reset": "to zero"},
        "its reset is 'to zero'\n  help     letters, digits, `_`, `.` and `-`",
    ),
    "a name that no text can say": (
        {"name": "m x;)"},
        "its name is 'm x;)'\n  help     letters, digits, `_`, `.` and `-`",
    ),
    "a layout in words": (
        {"operands": {"A": Place(layout="rows")}},  # type: ignore[arg-type]
        "the layout of A is 'rows'\n  help     layout=panels(16)\n  help     layout=None",
    ),
    "a matrix as a constant": (
        {"operands": {"A": Place(by="immediate")}},
        "A has 2 axes, and is a constant of the instruction",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_microkernel_is_refused(case: str) -> None:
    changed, because = REFUSED[case]
    with pytest.raises(DescribeError) as refused:
        Microkernel(**GIVEN | changed)
    name = (GIVEN | changed)["name"]
    assert str(refused.value) == f"microkernel: cannot declare {name}\n  because  {because}"


def test_a_microkernel_is_declared() -> None:
    assert Microkernel(**GIVEN).depth == "p"


def test_extents_end_where_the_computation_does() -> None:
    made = Microkernel(**GIVEN | {"computes": product(16), "bounds": {"p": multiples(4)}})
    assert str(made.extents_of("p")) == "from 4 to 16, multiples of 4"
    x = oc.dim("x", min=1, max=8)
    a = oc.placeholder((x + 2,), name="A")
    taps = oc.compute((x + 2,), lambda i: a[i] * 2.0, name="C")
    with pytest.raises(DescribeError, match="has 11 along i, and it computes from 3 to 10"):
        Microkernel("unit", taps, (TileShape((11,), 4.0, 4.0),))


DECLARED: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "an operand written": (
        lambda a, b, c: oc.hardware_intrinsic("one", a("w"), b("r"), c("w")),
        "body one\n  because  it writes A, and computes C",
    ),
    "no result": (
        lambda a, b, c: oc.hardware_intrinsic("one", a("r"), b("r")),
        "body one\n  because  it writes nothing, and computes C",
    ),
    "an operand left out": (
        lambda a, b, c: oc.hardware_intrinsic("one", a("r"), c("w")),
        "body one\n  because  it does not read B, which C is computed from",
    ),
    "a reset that reads": (
        lambda a, b, c: (
            oc.hardware_intrinsic("one", a("r"), b("r"), c("w")),
            oc.hardware_intrinsic("zero", a("r"), c("w")),
            oc.hardware_intrinsic("add", a("r"), b("r"), c("rw")),
        ),
        "reset zero\n  because  it reads A, and starts a reduction",
    ),
    "an update of half": (
        lambda a, b, c: (
            oc.hardware_intrinsic("one", a("r"), b("r"), c("w")),
            oc.hardware_intrinsic("zero", c("w")),
            oc.hardware_intrinsic("add", a("r"), c("rw")),
        ),
        "update add\n  because  it does not read B, which C is computed from",
    ),
}


@pytest.mark.parametrize("case", DECLARED)
def test_instructions_do_what_is_declared(case: str) -> None:
    lower, because = DECLARED[case]
    a, b = oc.placeholder((4, 8), name="A"), oc.placeholder((8, 4), name="B")
    p = oc.reduce_axis(8, name="p")
    block = oc.compute((4, 4), lambda i, j: oc.sum(a[i, p] * b[p, j], axis=p), name="C")
    with rejection(
        f"DescribeError: decl_tensor_intrin: cannot declare C\n  at       {because}\n"
        '  help     inputs[0].access_ptr("r"), outputs[0].access_ptr("w")'
    ):
        oc.decl_tensor_intrin(
            block,
            lambda ins, outs: lower(ins[0].access_ptr, ins[1].access_ptr, outs[0].access_ptr),
        )


def test_a_function_of_the_cpu_takes_one_depth() -> None:
    m, n = oc.dim("m", min=1, max=4), oc.dim("n", min=1, max=4)
    h, k = oc.dim("h"), oc.dim("k")
    r, p = oc.reduce_axis(h, name="r"), oc.reduce_axis(k, name="p")
    a, b = oc.placeholder((m, h, k), name="A"), oc.placeholder((h, k, n), name="B")
    both = oc.compute((m, n), lambda i, j: oc.sum(a[i, r, p] * b[r, p, j], axis=(r, p)), name="C")
    with rejection(
        "DescribeError: microkernel: cannot take both as one of the CPU's\n"
        "  because  it adds along r, p, and its functions take one depth\n"
        "  help     the sum along p alone: others are loops around it\n"
        "  help     repeats={'p'}: a call runs up to two of these, Variant.turns"
    ):
        family_of(Microkernel("both", both, GIVEN["tiles"]))
    assert family_of(Microkernel(**GIVEN)).wide
