"""What loops carry, by algebra where that says it, is what sets say; what is apart is not asked."""

from __future__ import annotations

from importlib import import_module

import pytest

from offcut import parse
from offcut.core.memo import forget
from offcut.polyhedral import carried_by, operation_budget
from offcut.polyhedral.isl_budget import operations
from tests.facade import dependences

HEAD = """\
size n in 0:100
input A: float32[n, n]
input B: int32[n]
output C: float32[n, n]
output S: float32[n]
local T: float32[n, n]
private p: float32[n]
"""
CARRIED = {
    "its own element": ("for i in 0:n\n  for j in 0:n\n    C[i, j] = A[j, i]", set()),
    "its own row": ("for i in 0:n\n  for j in 1:n\n    C[i, j] = C[i, j - 1]", {("j", "flow")}),
    "its own sum": (
        "for i in 0:n\n  S[i] = 0.0\n  for j in 0:n\n    S[i] += A[i, j]",
        {("j", kind) for kind in ("flow", "anti", "output")},
    ),
    "the axes turned": (
        "for i in 0:n\n  for j in 0:n\n    C[i, j] = C[j, i]",
        {("i", "flow"), ("i", "anti")},
    ),
    "an index of one access alone": (
        "for i in 0:n\n  for j in 0:n\n    C[i, j] = C[i, 0]",
        {("j", "flow")},
    ),
    "one scratch": (
        "for i in 0:n\n  for j in 0:n\n    p[j] = A[i, j]\n    C[i, j] = p[j]",
        {("i", kind) for kind in ("flow", "anti", "output")},
    ),
    "one nest after the other": (
        "for i in 0:n\n  for j in 0:n\n    T[i, j] = A[i, j]\n"
        "for i in 0:n\n  for j in 0:n\n    C[i, j] = T[j, i] + T[i, 0]",
        set(),
    ),
    "an index that memory holds": (
        "for i in 0:n\n  S[index(B[i])] = S[index(B[i])]",
        {("i", kind) for kind in ("flow", "anti", "output")},
    ),
}


@pytest.mark.parametrize(("body", "expected"), CARRIED.values(), ids=CARRIED)
def test_loops_carry_what_instances_that_meet_say(
    body: str, expected: set[tuple[str, str]]
) -> None:
    found = dependences(parse(HEAD + body))
    assert {(one.loop, one.kind) for one in found} == expected


@pytest.mark.parametrize(("body", "expected"), CARRIED.values(), ids=CARRIED)
def test_an_iterator_that_is_an_index_is_what_sets_find(
    body: str, expected: set[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = parse(HEAD + body)
    quick = list(dependences(program))
    asked = import_module("offcut.polyhedral.dependences")
    monkeypatch.setattr(asked, "_has_equal_index", lambda *_: False)
    for one, other in zip(quick, dependences(program), strict=True):
        assert (one.kind, one.path, one.certain) == (other.kind, other.path, other.certain)
        assert one.relation.is_equal(other.relation)


def test_nests_apart_are_not_asked_of_sets() -> None:
    terms = " + ".join(f"T[i, {k}]" for k in range(40))
    nests = [
        "for i in 0:n\n  for j in 0:n\n    T[i, j] = A[i, j]",
        f"for i in 0:n\n  S[i] = {terms}",
    ]
    program = parse(HEAD + "\n".join(nests))
    with operation_budget(1):
        assert not any(carried_by(program).values())


def test_what_was_asked_before_lets_nothing_more_through_a_bound() -> None:
    program = parse(HEAD + CARRIED["the axes turned"][0])

    def taken() -> int:
        before = operations()
        assert len([*dependences(program)]) == len(("flow", "anti"))
        return operations() - before

    forget()
    first, again = taken(), taken()
    assert again < first
    forget()
    assert abs(taken() - first) < (first - again) // 10
