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


def test_one_element_and_few_channels_are_gathered_where_they_lie() -> None:
    target = oc.target("cpu", machine="zen5")
    X = oc.placeholder((N, 48, 63), "float32", name="X")
    P = oc.placeholder((N, 95), "int32", name="P")
    one = oc.compute((N, 48, 95), lambda n, c, i: X[n, c, oc.index(P[n, i])], "Y")
    for Y, given in [(one, [X, P]), between(2)]:
        assert "_staged" not in str(oc.compile(Y, inputs=given, target=target).schedule)


@pytest.mark.parametrize(
    ("channels", "columns", "few", "many"),
    [
        (oc.dim("c"), 9, {"c": 1}, {"c": 48}),
        (48, oc.dim("w", min=2), {"w": 100_000}, {"w": 9}),
    ],
    ids=["unknown channels", "images of unknown size"],
)
def test_sizes_that_are_not_known_decide_in_the_call(
    channels: object, columns: object, few: dict[str, int], many: dict[str, int]
) -> None:
    Y, given = between(channels, columns=columns)
    kernel = oc.compile(Y, inputs=given, target=oc.target("cpu", machine="zen4"))
    for sizes, lanes in ((few, "lanes_j"), (many, "lanes_c_" if "c" in many else "lanes_c")):
        (chosen,) = (
            line
            for line in str(kernel.plan(n=3, **sizes)).splitlines()
            if line.endswith(", chosen")
        )
        assert f": {lanes}," in chosen


@pytest.mark.parametrize("threads", [1, 2])
def test_both_orders_give_the_same_bits_print_parse_and_replay(threads: int) -> None:
    channels, columns = oc.dim("c"), oc.dim("w", min=2)
    Y, given = between(channels, columns=columns)
    kernel = oc.compile(Y, inputs=given, threads=threads)
    lines = [line.split(" costs ")[0].strip() for line in str(kernel.schedule).splitlines()]
    assert lines[1:3] == ["choose", "option lanes_j"]
    assert "option lanes_c_" in lines
    again = oc.compile(
        Y, inputs=given, threads=threads, schedule=oc.Schedule.parse(str(kernel.schedule))
    )
    assert (again.source("loops"), again.schedule) == (kernel.source("loops"), kernel.schedule)
    by_loops = oc.compile(Y, inputs=given, strategy="cut", threads=1)
    draw = np.random.default_rng(0)
    for n, c, w in [
        (0, 3, 2),
        (1, 0, 2),
        (1, 1, 2),
        (3, 5, 9),
        (2, 15, 70),
        (3, 16, 9),
        (3, 33, 9),
    ]:
        x = draw.standard_normal((n, c, 7, w), np.float32)
        p, q = (draw.integers(0, end, (n, 5, 19), np.int32) for end in (6, w - 1))
        np.testing.assert_array_equal(kernel(x, p, q), by_loops(x, p, q))


def edited(change: str, to: str) -> str:
    """Return what is said of a choice between schedules in which a text is replaced."""
    Y, given = between(oc.dim("c"))
    text = str(oc.compile(Y, inputs=given).schedule)
    assert change in text
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(Y, inputs=given, schedule=oc.Schedule.parse(text.replace(change, to)))
    return str(refused.value)


def test_a_decision_in_an_option_is_refused_by_its_line() -> None:
    text = edited("stage write Y as Y_turned(n_, i, j, c_)", "stage write Y as Y_turned(n_, i, j)")
    assert text.splitlines()[:2] == [
        "schedule: cannot turn Y",
        "  at       line 9: stage write Y as Y_turned(n_, i, j)",
    ]


TWO_SCHEDULES = """
schedule Y
choose
  option near costs float64(n)
    stage value X[z0, z1, z2, z3] for Y as X_staged(z0, z2, z3, z1)
    split X_staged.z1 mask 64 as z1_tile z1_in
    order X_staged z0 z2 z1_tile z1_in
    cover X_staged at z1_in vectors
    split Y.j mask 32 as j_tile j_in
    order Y n_ c_ i j_tile j_in
    cover Y at j_in vectors
  option far costs float64(c)
    split Y.j mask 32 as j_tile j_in
    order Y n_ c_ i j_tile j_in
    cover Y at j_in vectors
"""


def refused(text: str) -> str:
    """Return why a choice between schedules is refused."""
    Y, given = between(oc.dim("c"))
    with pytest.raises(oc.PartitionError) as error:
        oc.compile(Y, inputs=given, schedule=oc.Schedule.parse(text))
    return str(error.value)


def test_a_choice_between_schedules_that_a_user_wrote_runs() -> None:
    Y, given = between(oc.dim("c"))
    kernel = oc.compile(Y, inputs=given, schedule=oc.Schedule.parse(TWO_SCHEDULES))
    assert ["option" in line for line in str(kernel.loops).splitlines()].count(True) == 2
    x, p = np.ones((3, 2, 7, 9), np.float32), np.zeros((3, 5, 19), np.int32)
    assert (kernel(x, p, p) == 1).all()


def test_a_choice_inside_of_an_option_is_refused() -> None:
    rows = TWO_SCHEDULES.splitlines()[-3:]
    inner = ["    choose", *("      option " + one + " costs 1.0" for one in "xy")]
    nested = [
        inner[0],
        *(line for option in inner[1:] for line in (option, *("    " + row for row in rows))),
    ]
    assert (
        refused("\n".join([*TWO_SCHEDULES.splitlines()[:-3], *nested]))
        == """\
schedule: cannot choose in the option far
  at       line 11: option far costs float64(c)
  because  a choice among schedules holds no other choice
  help     take the decisions of one option of that choice"""
    )


def test_a_name_stands_for_one_array_in_all_options() -> None:
    first, second = TWO_SCHEDULES.split("  option far")
    other = "    stage value X[z0, z1, z2, z3] for Y as X_staged(z0, z1, z3, z2)\n"
    head, _ = second.split("\n", 1)
    rest = first.split("X_staged(z0, z2, z3, z1)\n")[1].replace("z0 z2 z1_tile", "z0 z3 z1_tile")
    assert (
        refused(f"{first}  option far{head}\n{other}{rest}")
        == """\
schedule: cannot call two arrays X_staged
  at       line 11: option far costs float64(c)
  because  an option has another array of that name
  help     give the array of this option another name"""
    )
