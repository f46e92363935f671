"""Layouts: every element has one place, as the hardware's manual says, and comes back from it."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from math import prod

import numpy as np
import pytest
from conftest import refusals, rejection
from hypothesis import given, settings
from hypothesis import strategies as st

import offcut as oc
from offcut.backends.cpu import packed_constants
from offcut.backends.gpu import instructions as gpu
from offcut.core.layout import ROWS, Digit, Layout, Swizzle
from offcut.core.panels import PanelShape, as_panels, order, panels, words
from offcut.core.text.layouts import format_layout, layout_of

LAYOUTS = {
    "A of a warp": (gpu.MMA_A, (16, 16)),
    "B of a warp": (gpu.MMA_B, (16, 8)),
    "C of a warp": (gpu.MMA_C, (16, 8)),
    "rows": (ROWS, (3, 2, 5)),
    "turned": (order(1, 0), (5, 3)),
    "axes in an order": (order(2, 0, 1), (2, 3, 4)),
    "words of rows": (words((0, 1), (1, 16)), (5, 40)),
    "blocks of words": (words((0, 16), (1, 16)), (33, 20)),
    "one block": (words((0, 16), (1, 16)), (16, 16)),
    "words of two axes of four": (words((3, 4), (1, 2)), (2, 3, 2, 5)),
    "panels": (panels(16), (7, 40)),
    "panels of one column": (panels(1, 2, 4), (6, 3)),
    "panels of pairs": (panels(16, 2, 2), (7, 17)),
    "panels of fours, in sixteens": (panels(16, 4, 64), (65, 3)),
    "no column": (panels(8, 2, 2), (3, 0)),
    "panels of columns before rows, in others": (panels(4, 2, 4, 3, 1), (2, 7, 3, 5)),
    "places for more": (layout_of("digits(at: 0%4 1%8)"), (3, 5)),
    "no axis": (ROWS, ()),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_element_and_all_padding_have_a_place_of_their_own(name: str) -> None:
    layout, shape = LAYOUTS[name]
    whole = layout.padded_extents(shape)
    places = [layout.place(at) for at in product(*map(range, whole))]
    room = list(product(*map(range, layout.extents(shape))))

    assert sorted(places) == room if prod(whole) == len(room) else {*places} < {*room}
    assert [layout.element(place) for place in places] == list(product(*map(range, whole)))
    values = np.arange(1, np.prod(shape) + 1, dtype=np.int32).reshape(shape)
    stored = layout.arrange(values)
    assert stored.shape == layout.extents(shape)
    assert all(stored[layout.place(at)] == values[at] for at in np.ndindex(*shape))
    np.testing.assert_array_equal(layout.restore(stored, shape), values)
    assert np.count_nonzero(stored) == values.size
    for one in (layout, replace(layout, swizzle=Swizzle(2, 3, 5))):
        assert layout_of(format_layout(one)) == one
    declared = f"constant W: int8[{', '.join(map(str, shape))}]"
    mark, word = (oc.parse(f"{declared} {how}{format_layout(layout)}") for how in ("@", "layout "))
    assert mark == word == oc.parse(str(mark))
    assert mark.buffers[0].layout == layout


@given(st.integers(0, 29), st.sampled_from([1, 2, 4]), st.sampled_from([np.int8, np.uint8]))
@settings(max_examples=25)
def test_elements_of_few_bits_share_the_bytes_of_their_first_digit(
    extent: int, bits: int, dtype: type
) -> None:
    layout = replace(panels(4, 8 // bits, 8, 1, 0), bits=bits)
    assert layout_of(format_layout(layout)) == layout
    least = -(1 << bits - 1) if dtype is np.int8 else 0
    values = (
        np.random.default_rng(1).integers(least, least + (1 << bits), (5, extent)).astype(dtype)
    )
    held = layout.share_bytes(values)
    assert held.shape == (5, -(-extent // layout.per_byte))
    for row, at in np.ndindex(5, extent):
        place = bits * (at % layout.per_byte)
        part = int(held[row, at // layout.per_byte]) >> place & (1 << bits) - 1
        assert part == int(values[row, at]) & (1 << bits) - 1
    np.testing.assert_array_equal(layout.split_bytes(held, extent, np.dtype(dtype)), values)
    whole = replace(layout, bits=None).extents((5, extent))
    assert layout.arrange(values).size * layout.per_byte == np.prod(whole)


@pytest.mark.parametrize(
    ("bits", "layout", "because"),
    [
        (3, panels(16, 2, 2), "elements that share a byte have 1, 2 or 4 bits"),
        (4, panels(16), "the first digit counts the 2 elements of a byte"),
        (4, panels(16, 4, 4), "the first digit counts the 2 elements of a byte"),
        (4, replace(panels(16, 2, 2), swizzle=Swizzle(2, 2, 5)), "a swizzle moves whole bytes"),
    ],
)
def test_bits_are_refused_where_elements_of_a_byte_are_no_digit(
    bits: int, layout: Layout, because: str
) -> None:
    with pytest.raises(oc.DescribeError, match=because):
        replace(layout, bits=bits)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("panels(16)", panels(16, rows=1, columns=2)),
        ("panels(16, 4)", panels(16, 4, 4, 1, 2)),
        ("panels(0, 2, 16, 4)", panels(16, 4, 4, 0, 2)),
        ("digits(panel: 2//16, offset: 1%4 2%16 1//4)", panels(16, 4, 4, 1, 2)),
        ("words(2: 4) multiple(0: 3)", replace(words((2, 4)), multiple=(3, 1, 4))),
    ],
)
def test_a_layout_may_be_written_shorter_or_longer(text: str, layout: Layout) -> None:
    assert oc.parse(f"constant W: int8[8, 9, 10] layout {text}").buffers[0].layout == layout


def test_panels_are_known_by_their_digits() -> None:
    turned = Layout(
        (("at", (Digit(0, 4, None, 4), Digit(0, 2, 2, 2), Digit(0, 1, 2, 1), Digit(1, 1, 1, 1))),),
        (4, 1),
    )
    assert turned.places == (("at", (Digit(0, 1, None, 1),)),)
    assert panels(16, 4, 8).on(3, 1) == panels(16, 4, 8, 3, 1)
    assert panels(16, 4, 8).on(1, 0) == panels(16, 4, 8, 1, 0) != panels(16, 4, 8)
    for width, beside, times in product((1, 2, 16), (1, 2, 4), (1, 3)):
        for rows, columns in permutations(range(3), 2):
            layout = panels(width, beside, beside * times, rows, columns)
            found = as_panels(layout)
            assert found is not None
            assert panels(found.width, found.beside, found.multiple, rows, columns) == layout
            if width > 1:
                assert found == PanelShape(width, beside, beside * times, rows, columns)
    assert (
        as_panels(order(1, 0)) is as_panels(words((0, 1), (1, 16))) is as_panels(gpu.MMA_B) is None
    )


SWIZZLED = [
    ("order(0, 1)", (16, 64), 2, Swizzle(3, 4, 7)),
    ("order(1, 0)", (32, 16), 1, Swizzle(1, 4, 7)),
    ("order(0, 1)", (8, 32), 4, Swizzle(2, 4, 7)),
    ("panels(0, 1, 16, 2, 2)", (7, 17), 2, Swizzle(2, 2, 5)),
    ("words(0: 2, 1: 8)", (3, 30), 4, Swizzle(1, 6, 2)),
    ("order(2, 0, 1) multiple(2: 4)", (4, 2, 3), 8, Swizzle(2, 3, 6)),
    ("order(0, 1)", (0, 8), 1, Swizzle(1, 1, 2)),
]


@pytest.mark.parametrize(("text", "shape", "item", "swizzle"), SWIZZLED)
def test_a_swizzle_moves_elements_within_the_padded_operand(
    text: str, shape: tuple[int, ...], item: int, swizzle: Swizzle
) -> None:
    plain = layout_of(text)
    layout = replace(plain, swizzle=swizzle)
    extents = layout.extents(shape, item)
    whole = list(product(*map(range, layout.padded_extents(shape))))
    places = [layout.place(at, shape, item) for at in whole]

    assert sorted(places) == list(product(*map(range, extents)))
    assert [layout.element(place, shape, item) for place in places] == whole
    for at, place in zip(whole, places, strict=True):
        before, after = (
            item * sum(v * prod(extents[n + 1 :]) for n, v in enumerate(one))
            for one in (plain.place(at), place)
        )
        bits = [before >> swizzle.high + n & 1 for n in range(swizzle.bits)]
        assert after == before ^ sum(bit << swizzle.low + n for n, bit in enumerate(bits))
    values = np.arange(1, prod(shape) + 1).astype(f"u{item}").reshape(shape)
    stored = layout.arrange(values)
    assert all(stored[layout.place(at, shape, item)] == values[at] for at in np.ndindex(*shape))
    np.testing.assert_array_equal(layout.restore(stored, shape), values)


@pytest.mark.parametrize("row", [32, 64, 128])
@pytest.mark.parametrize("item", [1, 2, 4])
def test_swizzles_are_those_of_hopper(row: int, item: int) -> None:
    """PTX ISA, swizzling modes of 32, 64 and 128 bytes: cells of 16 bytes of rows of so many bytes, by bits of the address."""
    across = row // item
    layout, shape = gpu.shared_rows(row, item), (13, across + 1)
    assert layout.extents(shape, item) == (2, 16, across)
    for i, j in product(range(16), range(2 * across)):
        box, r, at = layout.place((i, j), shape, item)
        address = (j // across * 16 + i) * row + j % across * item
        cell = address // 16 ^ address // 128 % (row // 16)
        assert ((box * 16 + r) * across + at) * item == cell * 16 + address % 16
    starts = (layout.place((i, 0), shape, item) for i in range(8))
    banks = {(r * row + at * item) // 16 % 8 for _, r, at in starts}
    assert len(banks) == 8  # a column of 8 cells is read at once


def test_fragments_are_those_of_the_manual() -> None:
    """PTX ISA, matrix fragments of mma.m16n8k16: row and column of element i of a lane."""
    for lane, i in product(range(32), range(8)):
        group, four = lane >> 2, lane % 4
        row = group if i < 2 or 4 <= i < 6 else group + 8
        column = four * 2 + (i & 1) + (8 if i >= 4 else 0)
        assert gpu.MMA_A.element((lane, i)) == (row, column)
    for lane, i in product(range(32), range(4)):
        group, four = lane >> 2, lane % 4
        assert gpu.MMA_B.element((lane, i)) == (four * 2 + (i & 1) + (8 if i >= 2 else 0), group)
        assert gpu.MMA_C.element((lane, i)) == (group if i < 2 else group + 8, four * 2 + (i & 1))


@pytest.mark.parametrize("n", [8, 24, 256])
def test_fragments_of_a_warpgroup_are_those_of_the_manual(n: int) -> None:
    """PTX ISA, register fragments of wgmma: row and column of register i of a thread."""
    assert gpu.WGMMA_D.extents((64, n)) == (128, n // 2)
    assert gpu.WGMMA_A.extents((64, 16)) == (128, 8)
    for thread, i in product(range(128), range(n // 2)):
        row = thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8
        column = i // 4 * 8 + thread % 4 * 2 + i % 2
        assert gpu.WGMMA_D.element((thread, i)) == (row, column)
        assert gpu.WGMMA_D.place((row, column)) == (thread, i)
        if i < 8:
            assert gpu.WGMMA_A.element((thread, i)) == (row, column)
            held = gpu.MMA_A.element((thread % 32, i))  # 16 columns of D are stored by stmatrix.x4
            assert held == (row % 16, column) == ldmatrix(thread % 32, i)


def ldmatrix(lane: int, element: int) -> tuple[int, int]:
    """PTX ISA, ldmatrix.x4 of b16, addresses of rows of 16 × 16 by lanes ``l``: row l % 16, left half for l < 16."""
    matrix, pair = element // 2, element % 2
    addressed = 8 * matrix + lane // 4  # the lane that holds the address of this row of this matrix
    return addressed % 16, addressed // 16 * 8 + 2 * (lane % 4) + pair


@pytest.mark.parametrize(
    ("shape", "beside", "multiple"), [((1, 1), 1, 1), ((64, 17), 2, 32), ((65, 40), 4, 4)]
)
def test_constants_are_packed_as_the_layout_says(
    shape: tuple[int, int], beside: int, multiple: int
) -> None:
    values = np.arange(1, np.prod(shape) + 1, dtype=np.int32).reshape(shape)
    packed = packed_constants.pack(values, panels(16, beside, multiple), "int32")
    expected = panels(16, beside, multiple).arrange(values)
    found = packed.owner[: expected.nbytes].view(np.int32).reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)


ALIKE = [
    "panels(0, 1, 4)",
    "digits(panel: 1//4, offset: 1%4 0)",
    "digits(a: 1//4, b: 0, c: 1%4)",
    "digits(a: 1//4, b: 0, c: 1//2%2, d: 1%2)",
    "digits(a: 1//4, b: 0//2, c: 1%4, d: 0%2)",
    "panels(1, 0, 4)",
    "rows multiple(1: 8) swizzle(3, 4, 7)",
    "order(1, 0) multiple(0: 4)",
    "words(0: 2, 1: 16) multiple(0: 8)",
    "digits(a: 0%4, b: 0//4) multiple(0: 8)",
]


@pytest.mark.parametrize("text", ALIKE)
def test_layouts_of_one_canonical_form_place_all_elements_alike_and_print_as_written(
    text: str,
) -> None:
    mine = layout_of(text)
    assert layout_of(format_layout(mine)) == mine
    if "multiple" in text:
        assert format_layout(mine) == text
        return
    one, other = (list(at.arrange(np.arange(64).reshape(8, 8)).ravel()) for at in (mine, panels(4)))
    assert (mine.canonical() == panels(4).canonical()) == (one == other)


REFUSED = refusals(
    """\
a digit that is left out
>>> Layout((('at', (Digit(0, 2, None, 1),)),), (2,))
layout: cannot place an operand
  at       axis 0
  because  no digit counts 1

a digit twice
>>> Layout((('lane', (Digit(0, 1, 4, 1),)), ('at', (Digit(0, 1, 4, 1),))), (4,))
layout: cannot place an operand
  at       axis 0
  because  1 is counted twice

places that no element has
>>> Layout((('at', (Digit(0, 1, 4, 2),)),), (4,))
layout: cannot place an operand
  at       at
  because  no digit counts 1

two elements at one place
>>> Layout((('at', (Digit(0, 1, None, 1), Digit(1, 1, 4, 4))),), (1, 4))
layout: cannot place an operand
  at       at
  because  what counts 1 has no end, and is not the last digit

padding between digits
>>> panels(16, 4, 6)
layout: cannot place an operand
  at       axis 0
  because  its digits repeat after 4, not 6

an axis too many
>>> Layout((('at', (Digit(0, 1, 4, 1), Digit(1, 1, None, 4))),), (4,))
layout: cannot place an operand
  at       axis 1
  because  there are 1 axes

an axis that the operand lacks
>>> order(0, 2).extents((4, 4))
layout: cannot place an operand
  at       axis 2
  because  the operand has 2 axes

panels of nothing
>>> panels(0, 1, 1, 2, 2)
layout: cannot place an operand
  at       panels
  because  panels of 0 columns and 1 rows of axes 2 and 2 hold no elements

a digit of no values
>>> Layout((('at', (Digit(0, 1, 0, 1),)),), (1,))
layout: cannot place an operand
  at       axis 0
  because  element[0] // 1 % 0, times 1: axes count from 0, the rest from 1

a swizzle of no bits
>>> Swizzle(0, 4, 7)
layout: cannot place an operand
  at       swizzle(0, 4, 7)
  because  it is of one bit at least, and bits count from 0 to 62

a swizzle by bits that it changes
>>> Swizzle(3, 4, 6)
layout: cannot place an operand
  at       swizzle(3, 4, 6)
  because  the bits that change are among those that change them

a swizzle that takes elements apart
>>> layout_of('rows swizzle(1, 2, 4)').extents((8, 8), 8)
layout: cannot place an operand
  at       swizzle(1, 2, 4)
  because  it moves 4 bytes, and elements have 8

a swizzle that leaves the operand
>>> layout_of('rows swizzle(3, 4, 7)').arrange(np.zeros((3, 5, 32), np.int16))
layout: cannot place an operand
  at       swizzle(3, 4, 7)
  because  it moves within 128 bytes, and the operand has 960

an operand that is too large
>>> gpu.MMA_A.extents((17, 16))
layout: cannot place an operand
  at       axis 0
  because  it has 17 elements, and places for 16""",
    globals(),
)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_bijection_is_refused(name: str) -> None:
    make, text = REFUSED[name]
    with rejection(f"DescribeError: {text}"):
        make()
