"""What padding makes zero is not multiplied: shown for all sizes, refused where it is not so, and computed."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import rejection, slow

import offcut as oc
from offcut.errors import ParseError, PartitionError
from offcut.ir import Tile, walk
from offcut.proof import check_equal
from offcut.proof.normal_forms.condition_hoisting import unswitch
from offcut.proof.normal_forms.loop_fusion import fuse_tiles
from offcut.proof.normal_forms.zero_terms import guard_zero_terms

Pair = tuple[int, int]
Case = tuple[Pair, Pair, tuple[Pair, Pair], Pair, Pair]

HEAD = """program p
size n in 0:40
input X: float32[n]
constant F: float32[3] @finite
output Y: float32[n]
local S: float32[n + 2]
for z in 0:n + 2
  S[z] = where(z >= 1 and z - 1 < n, X[z - 1], 0.0)
"""
SUMS = f"""{HEAD}for x in 0:n
  Y[x] = 0.0
  for s in 0:3
    Y[x] += S[x + s] * F[s]
"""
TILES = f"""{HEAD}for t in 0:(n + 7)//8
  tile x in 8*t +: min(8, n - 8*t)
    Y[x] = 0.0
    for s in 0:3
      Y[x] += S[x + s] * F[s]
"""
APART = f"""{HEAD}for t in 0:(n + 7)//8
  tile x in 8*t +: min(8, n - 8*t)
    Y[x] = 0.0
  for s in 0:3
    tile x in 8*t +: min(8, n - 8*t) where x >= 1 - s and x < n - s + 1
      Y[x] += S[x + s] * F[s]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" @finite", ""),  # 0 times an infinity is a NaN
        ("X[z - 1], 0.0)", "X[z - 1], 1.0)"),
        ("X[z - 1], 0.0)", "X[z - 1], -0.0)"),
        ("Y[x] = 0.0", "Y[x] = -0.0"),  # -0 and a zero is +0
        ("* F[s]", "+ F[s]"),
        ("z - 1 < n", "X[z - 1] < 1.0"),  # asked of memory
        ("Y[x] = 0.0\n", "Y[x] = 0.0\n  Y[x] max= X[x]\n"),  # which may be -0
    ],
)
def test_terms_stay_where_they_may_matter(old: str, new: str) -> None:
    program = oc.parse(SUMS.replace(old, new))
    assert guard_zero_terms(program) is program


def test_one_text_of_two_meanings_keeps_its_terms() -> None:
    """The copy is made anew, of other elements outside, and summed by the same statement."""
    again = SUMS[SUMS.index("for z") :].replace("0.0)", "2.0)")
    program = oc.parse(SUMS + again)
    assert guard_zero_terms(program) is program


@pytest.mark.parametrize(("wide", "kept"), [("float32", False), ("float64", True)])
def test_a_finite_number_may_be_infinite_in_a_narrower_type(wide: str, kept: bool) -> None:
    text = SUMS.replace("float32", "float64")
    text = text.replace("Y: float64", f"Y: {wide}").replace("S: float64", f"S: {wide}")
    text = text.replace("F[s]", f"{wide}(F[s])").replace("X: float64", f"X: {wide}")
    program = oc.parse(text)
    assert (guard_zero_terms(program) is program) is not kept


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x >= 1 - s", "x >= 2 - s"),
        ("x < n - s + 1", "x < n - s"),
        slow("for s in 0:3\n    tile", "for s in 1:3\n    tile"),
        (" @finite", ""),
    ],
)
def test_fewer_terms_are_refused(old: str, new: str) -> None:
    assert old in APART
    whole = TILES.replace(old, new) if old == " @finite" else TILES  # an infinity by 0 is a NaN
    with pytest.raises(PartitionError):
        oc.prove_equal(oc.parse(whole), oc.parse(APART.replace(old, new)))


SHARED = """program p
size n in 1:9
output Y: float32[n]
output Z: float32[n]
tile x in 0 +: n
  Y[x] = 0.0
tile x in 0 +: n
  Z[x] = Y[n - 1 - x]
"""


def test_tiles_whose_instances_share_elements_stay_apart() -> None:
    program = oc.parse(SHARED)
    assert fuse_tiles(program) == program
    alone = oc.parse(SHARED.replace("Y[n - 1 - x]", "Y[x]"))
    assert sum(isinstance(stmt, Tile) for stmt in walk(fuse_tiles(alone).body)) == 1


N, H, W = oc.dim("n", max=8), oc.dim("h", max=40), oc.dim("w", max=40)
CASES = {
    "a stem": ((3, 16), (7, 7), ((3, 3), (3, 3)), (2, 2), (1, 1)),
    "uneven": ((8, 16), (3, 5), ((0, 2), (3, 1)), (1, 3), (1, 1)),
    "dilated": ((8, 48), (3, 3), ((2, 2), (2, 2)), (1, 1), (2, 2)),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_padded_convolution_is_what_it_was(case: Case) -> None:
    (channels, many), window, padding, stride, dilation = case
    x = oc.placeholder((N, channels, H, W), name="X")
    w = oc.placeholder((many, channels, *window), name="W")
    y = oc.ops.conv2d(x, w, padding=padding, stride=stride, dilation=dilation)
    rng = np.random.default_rng(0)
    weights = rng.integers(-3, 4, (many, channels, *window)).astype("float32")
    kernel = oc.compile(y, inputs=[x, w], constants={"W": weights})
    reach = tuple((size - 1) * step + 1 for size, step in zip(window, dilation, strict=True))
    for n, h, width in ((1, 7, 7), (2, 8, 1), (1, 5, 17), (3, 9, 6)):
        images = rng.integers(-3, 4, (n, channels, h, width)).astype("float32")
        around = np.pad(images, ((0, 0), (0, 0), *padding))
        windows = np.lib.stride_tricks.sliding_window_view(around, reach, axis=(2, 3))
        windows = windows[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
        expected = np.einsum("ncyxrs,ocrs->noyx", windows, weights)
        out = np.full(expected.shape, np.nan, "float32")
        kernel(images, out=out)
        np.testing.assert_array_equal(out, expected)


def padded(weights: np.ndarray) -> oc.Kernel:
    x = oc.placeholder((N, 32, H, W), name="X")
    w = oc.placeholder((32, 32, 3, 3), name="W")
    return oc.compile(oc.ops.conv2d(x, w, padding=1), inputs=[x, w], constants={"W": weights})


def test_rows_and_loops_of_the_padding_are_left_out() -> None:
    loops = padded(np.ones((32, 32, 3, 3), "float32")).source().splitlines()
    assert {line.strip() for line in loops if "for r in" in line} == {
        "for r in max(0, 1 - y):min(3, h - y + 1)"
    }
    tiles = [line for line in loops if "@cover(" in line]
    assert tiles
    assert all("where x >= 1 - s and x < w - s + 1" in line for line in tiles)


def test_an_infinite_weight_meets_the_zeros_of_the_padding() -> None:
    weights = np.ones((32, 32, 3, 3), "float32")
    weights[5, :, 0, 0] = np.inf
    images = np.ones((1, 32, 4, 4), "float32")
    found = padded(weights)(images)
    assert np.isnan(found[0, 5, 0]).all()
    assert np.isinf(found[0, 5, 1:, 1:]).all()
    assert np.isfinite(found[0, :5]).all()


def test_other_weights_are_finite_too() -> None:
    weights = np.ones((32, 32, 3, 3), "float32")
    kernel = padded(weights)
    kernel.with_constants({"W": 2 * weights})
    weights[0, 0, 0, 0] = np.nan
    with rejection(
        "DescribeError: with_constants: cannot take an infinity or NaN in W\n"
        "  because  the kernel leaves out its products with padding, which are 0 of finite numbers alone\n"
        "  help     oc.compile(…, constants=…) with these"
    ):
        kernel.with_constants({"W": weights})


def test_only_constants_are_declared_finite() -> None:
    assert str(oc.parse(SUMS)).count("@finite") == 1
    with pytest.raises(ParseError):
        oc.parse(SUMS.replace("input X: float32[n]", "input X: float32[n] @finite"))


ROWS = """program rows
size n in 0:40
input q: float32[n]
input m: int8[n]
input w: float32[n]
output S: float32[n]
for i in 0:n
  S[i] = 0.0
  for t in 0:n
    S[i] += where(CONDITION, w[t], NOTHING)
"""


@pytest.mark.parametrize(
    ("condition", "nothing", "outside"),
    [
        ("q[i] != q[i] and m[t] != 0", "-0.0", "if q[i] != q[i]\n    for t"),
        ("q[i] > 0.0 and m[i] != 0", "-0.0", "if q[i] > 0.0 and m[i] != 0\n    for t"),
        ("q[i] != q[i] and m[t] != 0", "0.0", ""),  # -0.0 + 0.0 is 0.0: such an update is one
        ("m[t] != 0", "-0.0", ""),
        ("S[i] > 0.0", "-0.0", ""),  # the loop changes it
        ("t <= i", "-0.0", ""),  # of places, which end the loop: `narrowing`
    ],
)
def test_a_condition_that_no_term_changes_is_asked_before_the_sum(
    condition: str, nothing: str, outside: str
) -> None:
    program = oc.parse(ROWS.replace("CONDITION", condition).replace("NOTHING", nothing))
    made = unswitch(program)
    assert (made is program) == (not outside)
    assert outside in str(made)
    draw = np.random.default_rng(0)
    given = {
        "q": np.array([np.nan, 1, -1, np.nan, 2], "float32"),
        "m": np.array([0, 1, 1, 0, 1], "int8"),
        "w": draw.normal(size=5).astype("float32"),
    }
    np.testing.assert_array_equal(made.run(given), program.run(given))
    if outside:
        check_equal(program, made, inside=True)
        other = oc.parse(str(made).replace(f"if {condition.split(' and ')[0]}", "if q[i] < 0.0"))
        with pytest.raises(PartitionError):
            check_equal(program, other, inside=True)


def test_a_sum_that_only_nan_asks_for_is_predicted_to_be_none() -> None:
    machine = oc.target("cpu", machine="cascade-lake")
    seconds = [
        oc.compile(
            oc.parse(ROWS.replace("CONDITION", one).replace("NOTHING", "-0.0")), target=machine
        )
        .cost(n=39)
        .seconds
        for one in ("q[i] != q[i] and m[t] != 0", "q[i] > 0.0 and m[t] != 0")
    ]
    assert seconds[0] < 0.5 * seconds[1]
