"""What is known of the sizes of an ONNX file: by its user, and by nodes that are refused without."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import rejection

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from offcut.ir import Var
from offcut.plugins.onnx.importer.size_facts import INT_MAX, SizeFacts
from tests.facade import format_expr

ORIGINS = {"n": ("n", 1), "h_2": ("h", 2), "w": ("w", 1)}
"""The sizes of a graph; h_2 is half of the h of the file."""


def test_what_is_said_of_a_size_bounds_it_and_of_another_nothing_does() -> None:
    facts = SizeFacts({"n": (2, 40), "w": 8})
    assert facts.bounds("n", "n") == facts.read_bounds("n") == (2, 40)
    assert facts.bounds("h", "h") == (1, INT_MAX)
    assert [facts.number(text) for text in "nhw"] == [None, None, 8]


def test_facts_of_the_graph_are_kept_beside_what_is_said() -> None:
    said = SizeFacts({"n": (2, 40)})
    facts = said.knowing(SizeFacts(lows={"n": 5}, highs={"n": 12}), ORIGINS)
    assert facts.bounds("n", "n") == (5, 12)
    assert said.bounds("n", "n") == (2, 40)
    assert facts.knowing(SizeFacts(lows={"n": 1}), ORIGINS).bounds("n", "n") == (2, 12)


def test_a_number_that_a_node_wants_is_one_of_the_file() -> None:
    assert SizeFacts().knowing(SizeFacts({"h_2": 6}), ORIGINS).number("h") == 6


def test_factors_multiply_and_bounds_are_of_what_is_left() -> None:
    facts = SizeFacts({"h": (3, 33)}, factors={"h": 2})
    assert facts.bounds("h", "h_2") == (2, 16)
    more = facts.knowing(SizeFacts(factors={"h_2": 3, "n": 5}), ORIGINS)
    assert (more.factor("h"), more.factor("n"), more.factor("w")) == (6, 5, 1)
    assert more.bounds("h", "h_6") == (1, 5)
    assert more.knowing(SizeFacts(highs={"h_6": 3}), {"h_6": ("h", 6)}).bounds("h", "h_6") == (1, 3)


def test_what_a_size_is_equal_to_is_written_in_sizes_of_the_file() -> None:
    facts = SizeFacts().knowing(SizeFacts(equal={"h_2": Var("w"), "n": Var("h_2")}), ORIGINS)
    assert {text: format_expr(one) for text, one in facts.equal.items()} == {
        "h": "2*w",
        "n": "1*(h//2)",
    }


@pytest.mark.parametrize("bounds", [(3, 1), (-1, 2), -1, 2.5, "n", (1, 2, 3), (0, 2**31)])
def test_what_are_no_bounds_is_refused(bounds: Any) -> None:
    with rejection(f"""\
DescribeError: from_onnx: cannot bound n by {bounds!r}
  because  bounds are the least and the greatest value, from 0 on
  help     sizes={{"n": (1, 512)}}
  help     sizes={{"n": 8}}"""):
        SizeFacts({"n": bounds}).read_bounds("n")


def test_bounds_without_a_multiple_between_them_are_refused() -> None:
    with rejection("""\
DescribeError: from_onnx: cannot bound h by (5, 7)
  because  the model wants a multiple of 4, and none is between them"""):
        SizeFacts({"h": (5, 7)}, factors={"h": 4}).bounds("h", "h_4")
