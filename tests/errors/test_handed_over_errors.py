"""What is handed over as an object, not as text: programs by hand, prices, constants, results of a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import ir, ops

COPY = oc.parse("""
program copy
size n in 0:33
input x: float32[n]
output C: float32[n]
for i in 0:n
  C[i] = x[i]
""")
STORE: Any = COPY.body[0].body[0]  # type: ignore[union-attr]


def inside(*body: Any) -> ir.Program:
    """The copy with another body of its loop."""
    return replace(COPY, body=(replace(COPY.body[0], body=body),))


NONE_OF_THEM = """\
{op}: cannot take this program
  because  a part of it is not one of the statements and expressions of offcut.ir
  help     a body is a tuple of statements, an operand an expression"""

PROGRAMS: dict[str, tuple[ir.Program, str]] = {
    "a number for a statement": (inside(3), NONE_OF_THEM),
    "a reduction that is none": (inside(replace(STORE, reduce="prod")), NONE_OF_THEM),
    "a buffer that is not declared": (
        inside(replace(STORE, buffer="ZZ")),
        """\
parse: cannot access `ZZ`
  at       line 5, column 5: ZZ[i] = x[i]
  because  no buffer of that name is declared
  help     declared: x, C""",
    ),
    "an input that is written": (
        inside(replace(STORE, buffer="x")),
        """\
parse: cannot write `x`
  at       line 5, column 5: x[i] = x[i]
  because  it is declared input, which is read only
  help     output, inout, local and private buffers are written""",
    ),
    "a value of another type": (
        inside(replace(STORE, value=ir.Const(1.0, "float64"))),
        """\
{op}: cannot take the program copy
  because  its text reads back as another program
  help     oc.parse(str(program)) is that one""",
    ),
}

TAKES: dict[str, Callable[[ir.Program], object]] = {
    "compile": oc.compile,
    "partition": lambda program: oc.partition(program, tile={"i": 4}),
    "prove_equal": lambda program: oc.prove_equal(COPY, program),
    "create_schedule": oc.create_schedule,
}


@pytest.mark.parametrize("op", TAKES)
@pytest.mark.parametrize("what", PROGRAMS)
def test_a_program_by_hand_is_read_back(what: str, op: str) -> None:
    program, text = PROGRAMS[what]
    with pytest.raises(oc.ParseError) as refused:
        TAKES[op](program)
    said = str(refused.value)
    assert said.replace("column 3", "column 5").replace("line 6", "line 5") == text.format(op=op)


def test_a_program_that_gives_nothing_back_is_refused() -> None:
    text = str(COPY).replace("output C", "local C")
    with rejection(
        "DescribeError: compile: cannot compile copy\n"
        "  because  it gives nothing back: it has no output and no inout array"
    ):
        oc.compile(oc.parse(text))


def test_a_price_past_all_floats_is_refused() -> None:
    n = oc.dim("n", max=64)
    a, w = oc.placeholder((n, 24), name="A"), oc.placeholder((24, 40), name="W")
    with pytest.raises(oc.DescribeError, match="a price is seconds"):
        oc.compile(ops.matmul(a, w), inputs=[a, w], price=lambda loops: 10**400)


def test_constants_of_a_plan_are_names_or_arrays() -> None:
    n = oc.dim("n", max=64)
    a = oc.placeholder((n, 24), name="A")
    with rejection(
        "DescribeError: plan: cannot take constants=3\n"
        "  because  they are names of inputs, or arrays by name\n"
        '  help     constants=["W"]'
    ):
        oc.target("cpu").plan(ops.relu(a), constants=3, n=3)  # type: ignore[arg-type]


def test_a_choice_of_nothing_is_refused() -> None:
    with rejection(
        "ParseError: parse: cannot read this line\n"
        "  at       line 3, column 7: choose\n"
        "  because  found the end of the line\n"
        "  help     an option below it is expected here"
    ):
        oc.parse("size n in 0:33\noutput C: float32[n]\nchoose")


def test_a_schedule_too_deep_is_refused() -> None:
    text = "schedule S\n" + "".join("  " * level + "together n\n" for level in range(3000))
    with rejection(
        "ParseError: parse: cannot read a schedule\n"
        "  at       line 102: together n\n"
        "  because  more than 100 levels are nested"
    ):
        oc.Schedule.parse(text)


@pytest.mark.parametrize("architecture", ["i386", "thumb", "wasm32"])
def test_a_machine_of_narrow_addresses_is_refused(architecture: str, tmp_path: Any) -> None:
    path = tmp_path / "narrow.toml"
    lines = (
        f'name = "narrow"\nlike = "cascade-lake"\narchitecture = "{architecture}"\nfeatures = []\n'
    )
    path.write_text(lines)
    n = oc.dim("n", max=64)
    a = oc.placeholder((n, 24), name="A")
    with rejection(
        "TargetError: compile: cannot make code for narrow\n"
        "  because  its addresses have 32 bits, and offcut's have 64"
    ):
        oc.target("cpu", machine=path).source(ops.relu(a), form="asm")


RESULTS: dict[str, tuple[Any, str]] = {
    "of another shape": (np.ones(8, "f4"), "out is (8,), and the result is (7, 8)"),
    "of another type": (np.ones((7, 8)), "out is float64, the result float32"),
    "no array": (None, "out is NoneType, and the result is (7, 8)"),
    "too many": ([np.ones((7, 8), "f4")] * 2, "it gives 2 arrays, and there are 1"),
}


@pytest.mark.parametrize("what", RESULTS)
def test_what_the_function_of_a_target_gives_is_checked(what: str) -> None:
    from offcut.backends.host.call import python_callable

    given, because = RESULTS[what]
    x = oc.placeholder((7, 8), name="x")
    signature = oc.compile(ops.relu(x, name="y")).signature
    call = python_callable(signature, lambda inputs, sizes: given)
    with rejection(
        f"TargetError: y: cannot take what the target's function gives\n  because  {because}"
    ):
        call(np.zeros((7, 8), "f4"))
