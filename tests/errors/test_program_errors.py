"""Every refusal of what a loop program says, as text, as a tree, and as what is handed over beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut import ir, ops

HEAD = """\
program f
size n in 1:60
size m in 0:9
input A: int32[n]
output B: int32[n]
local L: int32[n]
"""

DIVISORS = refusals(
    r"""
given 'for i in 0:n\n  B[i] = int32(3//i)\n'
cannot divide by i
  at       B[i] = int32(3//i)
  because  with n = 1, m = 0, i = 0, it is 0
  help     max(i, 1)
  help     an if, or where(…), around the division

given 'for i in 0:n % (1 - 3)\n  B[i] = 1\n'
cannot divide by 1 - 3
  at       for i in 0:n % (1 - 3)
  because  with n = 1, m = 0, it is -2
  help     max(1 - 3, 1)
  help     an if, or where(…), around the division

given 'for i in 0:n\n  B[i] = A[i] // int32(m)\n'
cannot divide by int32(m)
  at       B[i] = A[i]//int32(m)
  because  with n = 1, m = 0, i = 0, it is 0
  help     max(int32(m), 1)
  help     an if, or where(…), around the division

given 'for i in 0:n\n  B[i] = 3 // A[i]\n'
cannot divide by A[i]
  at       B[i] = 3//A[i]
  because  nothing shows that it is positive wherever it divides
  help     max(A[i], 1)
  help     an if, or where(…), around the division

given 'for i in 0:n*m\n  B[0] = int32(i % m)\n'
cannot divide by m
  at       B[0] = int32(i % m)
  because  nothing shows that it is positive wherever it divides
  help     max(m, 1)
  help     an if, or where(…), around the division
""",
    globals(),
)


@pytest.mark.parametrize("what", DIVISORS)
def test_a_divisor_that_may_be_zero_or_negative_is_refused(what: str) -> None:
    body, text = DIVISORS[what]
    program = oc.parse(HEAD + body)
    for op, call in (("partition", oc.partition), ("compile", oc.compile)):
        with rejection(f"PartitionError: {op}: {text}"):
            call(program)


@pytest.mark.parametrize(
    "value",
    [
        "int32(5//(i + 1))",
        "where(i > 0, int32(5 // i), 7)",
        "int32(i // max(m, 1))",
        "A[i] // max(A[i], 1)",
        "int32(i // ((m + 1)*(i + 1)))",
        "A[i] // int32(n)",
    ],
)
def test_a_divisor_that_is_positive_is_taken(value: str) -> None:
    program = oc.parse(f"{HEAD}for i in 0:n\n  B[i] = {value}\n")
    given = np.arange(-2, 5, dtype=np.int32)
    wanted = program.run({"A": given}, m=0)
    assert np.array_equal(oc.compile(program)(given, m=0), wanted)
    assert np.array_equal(oc.partition(program).run({"A": given}, m=0), wanted)


def test_a_program_that_divides_by_zero_stops_with_where_it_does() -> None:
    program = oc.parse(HEAD + "for i in 0:n\n  B[i] = A[i] // int32(m)\n")
    with rejection("""\
CallError: run: cannot run f: // by 0, which is not positive
  at       B[i] = A[i]//int32(m)
  because  it runs at m = 0, n = 2, i = 0"""):
        program.run({"A": np.ones(2, np.int32)}, m=0)


VALUES = refusals(
    r"""
given "for i in 0:n\n  alloc L[i +: 1]\n    let q in 0:2 = i\n      B[i] = int32(q)\n"
compile: cannot take the value q
  at       let q in 0:2 = i
  because  with n = 3, m = 0, it is not in 0:2
  help     a range that holds it at every size

given "tile i in 0 +: n\n  let q in 0:2 = i\n    B[i] = int32(q)\n"
compile: cannot take the value q
  at       let q in 0:2 = i
  because  with n = 3, m = 0, it is not in 0:2
  help     a range that holds it at every size

given "for i in 0:n\n  if A[i] > int32(i)\n    let q in 0:2 = i\n      B[i] = int32(q)\n"
compile: cannot take the value q
  at       let q in 0:2 = i
  because  sets do not show that it is in 0:2, nor express all around it
  help     a range that holds it at every size
""",
    {},
)


@pytest.mark.parametrize("what", VALUES)
def test_a_value_that_may_leave_its_range_is_refused(what: str) -> None:
    body, text = VALUES[what]
    with rejection(f"PartitionError: {text}"):
        oc.compile(oc.parse(HEAD + body))


def test_a_value_in_its_range_is_taken_wherever_it_stands() -> None:
    body = "tile i in 0 +: n\n  if A[i] > 0\n    let q in 0:2 = i % 2\n      B[i] = int32(q)\n"
    assert oc.compile(oc.parse(HEAD + body))


@pytest.mark.parametrize(("op", "call"), [("compile", oc.compile), ("partition", oc.partition)])
def test_floats_are_floored_by_the_interpreter_alone(op: str, call: Any) -> None:
    program = oc.parse("program p\ninput A: float32[4]\noutput C: float32[4]\nC[0] = A[0] // 2\n")
    with rejection(
        f"PartitionError: {op}: cannot take A[0]//2\n"
        "  at       C[0] = A[0]//2\n"
        "  because  // floors integers, and these are float32\n"
        "  help     / divides floats"
    ):
        call(program)


FILL = """program p
size n in 0:64
inout c: float32[n]
for i in 0:n
  c[i] = 1.0
"""
PROGRAM: Any = oc.parse(FILL)
STATEMENT: Any = PROGRAM.body[0]

NO_TREES: dict[str, tuple[Callable[[], object], str]] = {
    **refusals(
        r"""
>>> ir.walk(FILL)
walk: cannot take 'program p\nsize n in 0:64\ninout c: float32[n]\nfor i in 0:…
  because  it is of type str, not a program, a statement, a tuple of statements, an expression
  help     oc.parse(text) makes a program
  help     program.body is its statements
  help     ir.expressions(statement) are its expressions

>>> ir.dtype_of(STATEMENT)
dtype_of: cannot take for i in 0:n
  because  it is of type For, not an expression
  help     ir.expressions(statement) are its expressions

>>> ir.bound(None)
bound: cannot take None
  because  it is of type NoneType, not a statement

>>> ir.plain(None)
plain: cannot take None
  because  it is of type NoneType, not a program
  help     oc.parse(text) makes a program

>>> ir.rewrite(PROGRAM, None)
rewrite: cannot take rule=None
  because  a rule is a function of a node that gives what takes its place, or None

>>> ir.rewrite(PROGRAM, lambda stmt: ir.Var('i'))
rewrite, by its rule: cannot take i
  because  it is of type Var, not a statement, a tuple of statements
  help     program.body is its statements

>>> ir.rewrite_expressions(PROGRAM, lambda expr: 3)
rewrite_expressions, by its rule: cannot take 3
  because  it is of type int, not an expression
  help     ir.expressions(statement) are its expressions

>>> ir.bound(ir.Binary('?', 3, None))
bound: cannot take Binary(op='?', a=3, b=None)
  because  it is of type Binary, not a statement
""",
        globals(),
    ),
    "a program for an expression": (
        lambda: ir.children(PROGRAM),
        f"""\
children: cannot take {PROGRAM!r}
  because  it is of type Program, not an expression
  help     ir.expressions(statement) are its expressions""",
    ),
    "a program for a statement": (
        lambda: ir.blocks(PROGRAM),
        f"blocks: cannot take {PROGRAM!r}\n  because  it is of type Program, not a statement",
    ),
}


@pytest.mark.parametrize("case", NO_TREES)
def test_what_is_no_tree_is_refused(case: str) -> None:
    ask, text = NO_TREES[case]
    with rejection(f"DescribeError: {text}"):
        ask()


@pytest.mark.parametrize(
    "call",
    [
        lambda: ir.free([]),  # type: ignore[arg-type]
        lambda: [*ir.around((1, 2))],  # type: ignore[arg-type]
        lambda: ir.expressions(3),  # type: ignore[arg-type]
        lambda: ir.rewrite(STATEMENT, lambda stmt: None),
        lambda: ir.rewrite_expressions("p", lambda expr: None),  # type: ignore[arg-type]
    ],
)
def test_every_function_asks_for_its_kind_of_tree(call: Callable[[], object]) -> None:
    with pytest.raises(oc.DescribeError, match="because  it is of type"):
        call()


def test_trees_of_all_kinds_are_taken() -> None:
    (store,) = STATEMENT.body
    assert ir.bound(STATEMENT) == ("i",)
    assert ir.blocks(STATEMENT) == ((store,),)
    assert [one for one, _ in ir.around(PROGRAM)] == [STATEMENT, store]
    assert [*ir.around(path=((STATEMENT, 0),), tree=STATEMENT.body)] == [(store, ((STATEMENT, 0),))]
    assert ir.free(store.value) == frozenset()
    assert ir.children(store.value) == ()
    assert ir.plain(PROGRAM) is PROGRAM
    assert ir.rewrite(PROGRAM.body, lambda stmt: None) is PROGRAM.body


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


@pytest.mark.parametrize(
    ("what", "op"),
    [
        *zip(PROGRAMS, (*TAKES, "compile"), strict=True),
        *product(("a value of another type",), TAKES),
    ],
)
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


def test_a_machine_of_narrow_addresses_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "narrow.toml"
    path.write_text(
        'name = "narrow"\nlike = "cascade-lake"\narchitecture = "i386"\nfeatures = []\n'
    )
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


STAGED = """program t
size n in 0:100
input A: float32[n]
local L: float32[n + 1]
local S: float32[]
output B: float32[n]
"""
HELP = (
    "  help     a statement before it that writes {}\n"
    "  help     an if around the statement, or where(condition, …) around the access"
)
COPIED = "for i in 0:n\n  L[i] = A[i]\n"

UNWRITTEN = {
    "the element behind": (
        COPIED + "for i in 0:n\n  B[i] = L[i + 1]\n",
        "L[i + 1]|B[i] = L[i + 1]|with n = 1, i = 0, nothing has written L[1] before",
    ),
    "a sum from nothing": (
        "for i in 0:n\n  L[i] += A[i]\nfor i in 0:n\n  B[i] = L[i]\n",
        "L[i]|L[i] += A[i]|with n = 1, i = 0, nothing has written L[0] before",
    ),
    "a result added to": (
        "for i in 0:n\n  B[i] += A[i]\n",
        "B[i]|B[i] += A[i]|with n = 1, i = 0, nothing has written B[0] before",
    ),
    "a scalar that some iterations write": (
        "for i in 0:n\n  if i > 2\n    S[] = A[i]\n  B[i] = S[]\n",
        "S[]|B[i] = S[]|with n = 1, i = 0, nothing has written S[] before",
    ),
    "statements in the wrong order": (
        "for i in 0:n\n  B[i] = L[i]\n  L[i] = A[i]\n",
        "L[i]|B[i] = L[i]|with n = 1, i = 0, nothing has written L[0] before",
    ),
    "a window of another iteration": (
        "for t in 0:2\n  alloc L[0 +: n]\n    if t == 0\n      for i in 0:n\n        L[i] = A[i]\n"
        "    for i in 0:n\n      B[i] = L[i]\n",
        "L[i]|B[i] = L[i]|with n = 1, t = 1, i = 0, nothing has written L[0] before",
    ),
    "a condition": (
        "for i in 0:n\n  if L[i] > 0.0\n    B[i] = 2.0\n  else\n    B[i] = 1.0\n",
        "L[i]|if L[i] > 0.0|with n = 1, i = 0, nothing has written L[0] before",
    ),
    "tiles without their rest": (
        "for i in 0:n//4\n  for j in 0:4\n    L[4*i + j] = A[4*i + j]\nfor i in 0:n\n  B[i] = L[i]\n",
        "L[i]|B[i] = L[i]|with n = 1, i = 0, nothing has written L[0] before",
    ),
}


@pytest.mark.parametrize("case", UNWRITTEN)
def test_a_read_of_what_nothing_wrote_is_refused(case: str) -> None:
    body, said = UNWRITTEN[case]
    access, at, because = said.split("|")
    with rejection(
        f"PartitionError: compile: cannot read {access} before it is written\n  at       {at}\n"
        f"  because  {because}\n{HELP.format(access[0])}"
    ):
        oc.compile(oc.parse(STAGED + body))


TAKEN = {
    "a scalar of the iteration before": "S[] = 0.0\nfor i in 0:n\n  B[i] = S[]\n  S[] = A[i]\n",
    "where it was written": COPIED + "for i in 0:n\n  B[i] = where(i + 1 < n, L[i + 1], 0.0)\n",
    "tiles and their rest": "for i in 0:n//4\n  for j in 0:4\n    L[4*i + j] = A[4*i + j]\nfor i in 0:n % 4\n"
    "  L[4*(n//4) + i] = A[4*(n//4) + i]\nfor i in 0:n\n  B[i] = L[i]\n",
    "a window of its own": "for i in 0:n\n  alloc L[i +: 1]\n    L[i] = A[i]\n    B[i] = L[i]\n",
    # open: sets do not say whether it is written, or read
    "a write that memory decides": "for i in 0:n\n  if A[i] > 0.0\n    L[i] = A[i]\n  B[i] = where(A[i] > 0.0, L[i], 0.0)\n",
    "a read that memory decides": COPIED
    + "for i in 0:n\n  if A[i] > 1e30\n    B[i] = L[i + 1]\n  else\n    B[i] = A[i]\n",
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_written_before_or_what_sets_do_not_say_is_compiled(case: str) -> None:
    program = oc.parse(STAGED + TAKEN[case])
    kernel = oc.compile(program)
    for n in (0, 1, 4, 7):
        a = np.arange(1.0, n + 1.0, dtype="f4")
        np.testing.assert_array_equal(kernel(a), program.run({"A": a}, n=n))


def reads(n: int, writes: tuple[int, int], step: int, shift: int, late: int) -> Iterator[int]:
    """The iterations that read what none wrote, by running the program."""
    written: set[int] = set()
    if not late:
        written |= {step * i for i in range(writes[0], n - writes[1]) if step * i < n}
    for i in range(n):
        if late and writes[0] <= i < n - writes[1]:
            written.add(i)
        if 0 <= i + shift < n and i + shift not in written:
            yield i


@pytest.mark.parametrize("late", [0, 1], ids=["before", "in turn"])
def test_refusals_and_their_witnesses_are_those_of_an_enumeration(late: int) -> None:
    for first, last, step, shift in product((0, 1), (0, 1), (1, 2), (-1, 0, 1)):
        if late and step == 2:
            continue
        head = f"for i in {first}:n - {last}\n"
        write = f"  if {step}*i < n\n    L[{step}*i] = A[i]\n"
        read = f"  if i + {shift} >= 0 and i + {shift} < n\n    B[i] = L[i + {shift}]\n"
        body = head + write + "for i in 0:n\n" + read
        if late:
            held = f"  if i >= {first} and i < n - {last}\n    L[i] = A[i]\n"
            body = "for i in 0:n\n" + held + read
        found = ((n, i) for n in range(8) for i in reads(n, (first, last), step, shift, late))
        wanted = next(found, None)
        assert witness(oc.parse(STAGED + body)) == wanted, body


def witness(program: oc.Program) -> tuple[int, int] | None:
    """The size and the iteration of a refusal; None where there is none."""
    try:
        oc.compile(program, target="interpret")
    except oc.PartitionError as refused:
        n, i = re.findall(r" = (\d+)", refused.because or "")
        return int(n), int(i)
    return None
