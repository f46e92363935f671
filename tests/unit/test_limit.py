"""A bound on isl's work: counted exactly, nested, and given back."""

from __future__ import annotations

import threading

import islpy as isl
import pytest

from offcut.polyhedral import BudgetExceeded, operation_budget, try_isl
from offcut.polyhedral.isl_budget import IslError, operations

TRIANGLE = "[n] -> { [i, j] : 0 <= i < n and 0 <= j <= i }"


def work(count: int) -> None:
    for _ in range(count):
        isl.Val.zero(isl.DEFAULT_CONTEXT)  # one operation


def test_what_isl_takes_is_counted() -> None:
    before = operations()
    work(1000)
    assert 1000 <= operations() - before <= 1010


def test_within_the_bound_all_is_answered_and_the_bound_is_gone_afterwards() -> None:
    with operation_budget(10_000):
        assert not isl.Set(TRIANGLE).is_empty()
    work(20_000)


@pytest.mark.parametrize("count", [1, 10, 50, 100])
def test_beyond_it_isl_gives_up_whatever_it_calls_the_reason(count: int) -> None:
    with pytest.raises(BudgetExceeded), operation_budget(count):
        isl.Set(TRIANGLE).lexmin().is_equal(isl.Set(TRIANGLE))
    assert not isl.Set(TRIANGLE).is_empty()


def test_an_error_that_is_not_the_bounds_is_a_failure() -> None:
    with pytest.raises(IslError, match="syntax error"), operation_budget(10_000):
        isl.Set("{ [i] : i >")
    with pytest.raises(TypeError, match="no number"), operation_budget(100):
        raise TypeError("no number")


def test_a_bound_inside_takes_from_the_one_around() -> None:
    def ask() -> None:
        with operation_budget(500):
            work(400)

    with operation_budget(1000):
        ask()
        ask()
        with pytest.raises(BudgetExceeded):
            ask()
    with operation_budget(2000):
        with pytest.raises(BudgetExceeded), operation_budget(500):
            work(600)
        work(1000)  # what is left of the bound around
    with pytest.raises(BudgetExceeded), operation_budget(500), operation_budget(5000):
        work(600)


def test_what_is_not_known_in_bounded_work_has_another_answer() -> None:
    assert try_isl(lambda: isl.Set(TRIANGLE).is_empty(), None) is False
    with operation_budget(100):
        assert try_isl(lambda: isl.Set(TRIANGLE).is_empty(), None) is None


def test_threads_do_not_take_from_each_other() -> None:
    failed: list[Exception] = []

    def ask() -> None:
        try:
            for _ in range(20):
                with operation_budget(1100):
                    work(1000)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed


# A number of isl that is read where its work is at its end raises what the budget raises.


def test_a_number_that_is_read_beyond_the_budget_exceeds_it() -> None:
    number = isl.Val(7)
    with pytest.raises(BudgetExceeded), operation_budget(3):
        sum(number.to_python() for _ in range(100))
    assert number.to_python() == 7
