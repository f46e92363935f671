"""Layouts: every element has one place, as the hardware's manual says, and comes back from it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import offcut as oc
from offcut.backends.accelerator.microkernels import words
from offcut.backends.cpu import constants
from offcut.backends.gpu import mma
from offcut.core.layout import Digit, Layout, panels

LAYOUTS = {
    "A of a warp": (mma.A, (16, 16)),
    "B of a warp": (mma.B, (16, 8)),
    "C of a warp": (mma.C, (16, 8)),
    "rows of words": (words(1, 16, 3), (5, 40)),
    "blocks of words": (words(16, 16, 2), (33, 20)),
    "one block": (words(16, 16, 1), (16, 16)),
    "one row": (words(1, 16, 1), (1, 16)),
    "panels": (panels(16), (7, 40)),
    "panels of pairs": (panels(16, 2, 2), (7, 17)),
    "panels of fours, in sixteens": (panels(16, 4, 64), (65, 3)),
    "no column": (panels(8, 2, 2), (3, 0)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_element_and_all_padding_have_a_place_of_their_own(name: str) -> None:
    layout, shape = LAYOUTS[name]
    whole = layout.padded(shape)
    places = [layout.place(at) for at in product(*map(range, whole))]

    assert sorted(places) == sorted(product(*map(range, layout.extents(shape))))
    assert [layout.element(place) for place in places] == list(product(*map(range, whole)))


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_laid_is_taken_again_and_the_rest_is_zero(name: str) -> None:
    layout, shape = LAYOUTS[name]
    values = np.arange(1, np.prod(shape) + 1, dtype=np.int32).reshape(shape)

    stored = layout.laid(values)

    assert stored.shape == layout.extents(shape)
    np.testing.assert_array_equal(layout.taken(stored, shape), values)
    assert np.count_nonzero(stored) == values.size


def test_fragments_are_those_of_the_manual() -> None:
    """PTX ISA, matrix fragments of mma.m16n8k16: row and column of element i of a lane."""
    for lane, i in product(range(32), range(8)):
        group, four = lane >> 2, lane % 4
        row = group if i < 2 or 4 <= i < 6 else group + 8
        column = four * 2 + (i & 1) + (8 if i >= 4 else 0)
        assert mma.A.element((lane, i)) == (row, column)
    for lane, i in product(range(32), range(4)):
        group, four = lane >> 2, lane % 4
        assert mma.B.element((lane, i)) == (four * 2 + (i & 1) + (8 if i >= 2 else 0), group)
        assert mma.C.element((lane, i)) == (group if i < 2 else group + 8, four * 2 + (i & 1))


@pytest.mark.parametrize(("beside", "multiple"), [(1, 1), (2, 2), (2, 32), (4, 4), (4, 64)])
@pytest.mark.parametrize("shape", [(1, 1), (3, 16), (64, 17), (65, 40)])
def test_constants_are_packed_as_the_layout_says(
    shape: tuple[int, int], beside: int, multiple: int
) -> None:
    values = np.arange(1, np.prod(shape) + 1, dtype=np.int32).reshape(shape)
    packed = constants.pack(values, panels(16, beside, multiple), "int32")

    expected = panels(16, beside, multiple).laid(values)

    found = packed.owner[: expected.nbytes].view(np.int32).reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)


REFUSED = {
    "a digit that is left out": (
        lambda: Layout((("at", (Digit(0, 2, None, 1),)),), (2,)),
        """\
layout: cannot place an operand
  at       axis 0
  because  no digit counts 1""",
    ),
    "a digit twice": (
        lambda: Layout((("lane", (Digit(0, 1, 4, 1),)), ("at", (Digit(0, 1, 4, 1),))), (4,)),
        """\
layout: cannot place an operand
  at       axis 0
  because  1 is counted twice""",
    ),
    "places that no element has": (
        lambda: Layout((("at", (Digit(0, 1, 4, 2),)),), (4,)),
        """\
layout: cannot place an operand
  at       at
  because  no digit counts 1""",
    ),
    "two elements at one place": (
        lambda: Layout((("at", (Digit(0, 1, None, 1), Digit(1, 1, 4, 4))),), (1, 4)),
        """\
layout: cannot place an operand
  at       at
  because  what counts 1 has no end, and is not the last digit""",
    ),
    "padding between digits": (
        lambda: panels(16, 4, 6),
        """\
layout: cannot place an operand
  at       axis 0
  because  its digits repeat after 4, not 6""",
    ),
    "an axis too many": (
        lambda: Layout((("at", (Digit(0, 1, 4, 1), Digit(1, 1, None, 4))),), (4,)),
        """\
layout: cannot place an operand
  at       axis 1
  because  there are 1 axes""",
    ),
    "an operand that is too large": (
        lambda: mma.A.extents((17, 16)),
        """\
layout: cannot place an operand
  at       axis 0
  because  it has 17 elements, and places for 16""",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_bijection_is_refused(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises(oc.DescribeError) as refused:
        make()
    assert str(refused.value) == text
