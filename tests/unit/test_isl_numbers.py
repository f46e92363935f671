"""A number of isl that is read where its work is at its end raises what the budget raises."""

from __future__ import annotations

import islpy as isl
import pytest

from offcut.polyhedral.isl_budget import BudgetExceeded, operation_budget


def test_a_number_that_is_read_beyond_the_budget_exceeds_it() -> None:
    number = isl.Val(7)
    with pytest.raises(BudgetExceeded), operation_budget(3):
        sum(number.to_python() for _ in range(100))
    assert number.to_python() == 7


def test_an_error_of_types_within_the_budget_is_raised_as_it_is() -> None:
    with pytest.raises(TypeError, match="no number"), operation_budget(100):
        raise TypeError("no number")
