"""What members agree on is taken, where they differ the closed form stays."""

from __future__ import annotations

import numpy as np

from offcut.costmodel.learned.ensemble import consensus
from tests.agree import nearly

NOTHING = np.zeros((4, 1))


def test_what_all_members_say_is_taken_whole() -> None:
    said = np.array([[0.3, -0.2, 0.0]] * 4)

    assert consensus(said, NOTHING) == nearly(said[0], abs=1e-9)


def test_what_members_differ_in_is_taken_in_part_and_never_past_their_mean() -> None:
    rng = np.random.default_rng(0)
    said = rng.normal(0.1, 0.3, (4, 200))

    taken, mean = consensus(said, NOTHING), said.mean(axis=0)

    assert (np.abs(taken) <= np.abs(mean)).all()
    assert (taken * mean >= 0).all()


def test_members_that_contradict_each_other_leave_the_closed_form() -> None:
    said = np.array([[0.5, 0.5], [-0.5, -0.5], [0.5, 0.5], [-0.49, -0.51]])

    assert consensus(said, NOTHING) == nearly(np.zeros(2), abs=1e-4)


def test_the_order_of_rows_is_kept_where_members_differ_in_the_level_alone() -> None:
    apart = np.array([0.0, 0.2, -0.4])
    levels = np.array([[1.0], [-1.0], [0.9], [-0.9]])

    taken = consensus(apart + levels, levels)

    assert taken == nearly(apart, abs=1e-9)


def test_one_member_is_taken_at_its_word() -> None:
    assert consensus(np.array([[0.25]]), np.zeros((1, 1))) == nearly(np.array([0.25]), abs=1e-6)
