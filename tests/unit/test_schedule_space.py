"""Spaces that are products of choices: every explorer finds the least of a price, and stays inside."""

from itertools import product
from random import Random

import pytest

from offcut import Schedule
from offcut.errors import DescribeError
from offcut.search import product_space
from offcut.search.explorers import Explorer
from offcut.search.schedule_space import Point
from tests.facade import TriedSchedule, get_explorer

ROWS, COLUMNS = (1, 2, 4, 8, 16), (16, 32, 64)


def written(point: Point) -> Schedule:
    rows, columns = point
    return Schedule.parse(
        f"schedule C\nsplit C.i cut {rows} as i_tile i_in\nsplit C.j cut {columns} as j_tile j_in\n"
    )


def read(schedule: Schedule) -> Point | None:
    every = ((rows, columns) for rows in (*ROWS, 32) for columns in COLUMNS)
    return next((point for point in every if written(point) == schedule), None)


def price(schedule: Schedule) -> float:
    rows, columns = read(schedule) or (0, 0)
    return 1.0 + abs(float(str(rows)) - 8) + abs(float(str(columns)) - 32) / 16


SPACE = product_space(written((1, 16)), (ROWS, COLUMNS), written, read, expected=price)


def test_all_points_are_listed_once_the_first_before_all_others() -> None:
    found = list(SPACE.enumerate())
    assert found[0] == SPACE.first
    assert len(found) == len(set(found)) == SPACE.size == 15
    assert all(one in SPACE for one in found)
    assert list(SPACE.enumerate(3)) == found[:3]


def test_points_that_are_written_alike_are_one_schedule() -> None:
    said = product_space(  # the last choice says nothing of rows that are not cut
        written((1, 16)),
        (ROWS, COLUMNS, ("a", "b")),
        lambda point: written((point[0], 64 if point[0] != 1 and point[2] == "b" else 16)),
        lambda schedule: (*(read(schedule) or ()), "a"),
    )
    every = list(said.enumerate())
    points = product(ROWS, COLUMNS, ("a", "b"))
    assert every == list(dict.fromkeys(said.write(point) for point in points))
    assert len(every) == 9 < said.size
    assert list(said.enumerate(4)) == every[:4]
    assert said.neighbours(written((1, 16))) == (written((2, 16)),)


def test_neighbours_differ_in_one_choice_by_one_option() -> None:
    assert set(SPACE.neighbours(written((4, 16)))) == {
        written((2, 16)),
        written((8, 16)),
        written((4, 32)),
    }
    assert written((32, 16)) not in SPACE
    with pytest.raises(DescribeError) as refused:
        SPACE.neighbours(written((32, 16)))
    assert str(refused.value) == (
        "tune: cannot search around a schedule of C\n"
        "  because  it is not a point of the space\n"
        "  help     space.first\n"
        "  help     space.sample(rng)\n"
        "  help     space.neighbours(point)"
    )


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["anneal", "beam", "evolution", "exhaustive"])
def test_explorers_find_the_least_of_a_price(name: str) -> None:
    _, explorer = get_explorer(name)
    seen: list[TriedSchedule] = []
    for number in range(4):
        proposed = explorer.propose(SPACE, seen, Random(number), 4)
        seen += [TriedSchedule(one, price(one)) for one in proposed]
    assert isinstance(explorer, Explorer)
    assert all(one.schedule in SPACE for one in seen)
    if name != "exhaustive":
        assert min(one.seconds or 0.0 for one in seen) == 1.0
