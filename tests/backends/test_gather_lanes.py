"""Stages that read elements at places that an array names: lanes run along an axis that they read side by side, where copies pay."""

from __future__ import annotations

import numpy as np
import pytest

import offcut as oc
from tests.agree import agree, computed

N = oc.dim("n", max=9)
STAGED = "stage value X[z0, z1, z2, z3] for Y as X_staged(z0, z2, z3, z1)"
TURNED = "stage write Y as Y_turned(n_, i, j, c)"


def between(
    channels: object, dtype: str = "float32", columns: object = 9
) -> tuple[oc.Tensor, list[oc.Tensor]]:
    """Return the mean of four elements of an image that arrays of places name."""
    X = oc.placeholder((N, channels, 7, columns), dtype, name="X")
    P, Q = (oc.placeholder((N, 5, 19), "int32", name=name) for name in "PQ")

    def mean(n: oc.Value, c: oc.Value, i: oc.Value, j: oc.Value) -> oc.Value:
        row, column = oc.index(P[n, i, j]), oc.index(Q[n, i, j])
        return (
            X[n, c, row, column] * 0.25
            + X[n, c, row + 1, column] * 0.25
            + X[n, c, row, column + 1] * 0.25
            + X[n, c, row + 1, column + 1] * 0.25
        )

    return oc.compute((N, channels, 5, 19), mean, "Y", axes=("n_", "c", "i", "j")), [X, P, Q]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("channels", [1, 3, 8, 15, 16, 17, 48, 53])
def test_elements_at_named_places_are_right(channels: int, dtype: str) -> None:
    Y, given = between(channels, dtype)
    kernel = oc.compile(Y, inputs=given)
    draw = np.random.default_rng(channels)
    for n in (0, 1, 3):
        x = draw.standard_normal((n, channels, 7, 9)).astype(dtype)
        x[..., 2, 3] = np.inf
        p, q = (draw.integers(0, end, (n, 5, 19), np.int32) for end in (6, 8))
        rows, columns = p[:, None, :, :], q[:, None, :, :]
        at = np.arange(n)[:, None, None, None], np.arange(channels)[None, :, None, None]
        steps = [(down, across) for down in (0, 1) for across in (0, 1)]
        places = [(*at, rows + down, columns + across) for down, across in steps]
        mean = computed(lambda x, places=places: sum(x[place] * 0.25 for place in places), x)
        agree(kernel(x, p, q), mean)


@pytest.mark.parametrize("machine", ["zen4", "zen5", "cascade-lake", "avx2"])
def test_several_elements_are_read_along_channels(machine: str) -> None:
    Y, given = between(48)
    text = str(oc.compile(Y, inputs=given, target=oc.target("cpu", machine=machine)).schedule)
    assert STAGED in text
    assert TURNED in text


def test_one_element_few_channels_and_images_of_unknown_size_are_gathered_where_they_lie() -> None:
    target = oc.target("cpu", machine="zen5")
    X = oc.placeholder((N, 48, 63), "float32", name="X")
    P = oc.placeholder((N, 95), "int32", name="P")
    one = oc.compute((N, 48, 95), lambda n, c, i: X[n, c, oc.index(P[n, i])], "Y")
    cases = [
        (one, [X, P]),
        between(2),
        between(oc.dim("c")),
        between(48, columns=oc.dim("w", min=2)),
    ]
    for Y, given in cases:
        assert "_staged" not in str(oc.compile(Y, inputs=given, target=target).schedule)


def test_what_is_turned_prints_parses_replays_and_has_the_same_bits() -> None:
    Y, given = between(48)
    turned, by_loops = oc.compile(Y, inputs=given), oc.compile(Y, inputs=given, strategy="cut")
    assert TURNED in str(turned.schedule)
    assert TURNED not in str(by_loops.schedule)
    schedule = oc.Schedule.parse(str(turned.schedule))
    assert schedule == turned.schedule
    again = oc.compile(Y, inputs=given, schedule=schedule)
    assert (again.source("loops"), str(again.schedule)) == (
        turned.source("loops"),
        str(turned.schedule),
    )
    draw = np.random.default_rng(0)
    x = draw.standard_normal((3, 48, 7, 9), np.float32)
    p, q = (draw.integers(0, end, (3, 5, 19), np.int32) for end in (6, 8))
    np.testing.assert_array_equal(turned(x, p, q), by_loops(x, p, q))
    np.testing.assert_array_equal(turned(x[:1], p[:1], q[:1]), turned(x, p, q)[:1])
