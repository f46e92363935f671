"""`quotient` and `with_sizes` give what sympy's ``//`` and ``xreplace`` give, which search for it longer."""

from itertools import product

import pytest
import sympy

from offcut import dim
from offcut.core.sizes import quotient, with_sizes

N, M = dim("n"), dim("m", max=9, multiple_of=3)
HALF = (N - 1) // 2
SIZES = ((N, M), (N, N * M), (HALF, N), (N % 4, HALF), (sympy.Max(N, M), sympy.Min(N, 4)))


@pytest.mark.every(4)
@pytest.mark.parametrize(("x", "y"), SIZES, ids=str)
def test_a_quotient_is_the_floor_that_sympy_finds(x, y):
    x, y = sympy.sympify(x), sympy.sympify(y)
    for a, b, c, divisor in product((-3, 0, 2, 4), (0, 1, 8), (-7, 0, 1, 4), (2, 3)):
        assert quotient(a * x + b * y + c, divisor) == (a * x + b * y + c) // divisor


@pytest.mark.parametrize("size", [N / 2, 3 * N / 2 + 1, (N + 1) * (M + 2) * 3, 2 * (N + M) + 3])
def test_what_is_no_sum_of_whole_terms_is_left_to_sympy(size):
    assert quotient(size, 2) == size // 2


def test_a_quotient_of_numbers_is_a_number():
    assert [quotient(n, 4) for n in (-5, -1, 0, 3, 4, 9)] == [-2, -1, 0, 0, 1, 2]


@pytest.mark.parametrize(
    "size", [one for pair in SIZES for one in pair] + [HALF // 3 + M, sympy.Integer(3)], ids=str
)
def test_a_size_in_other_symbols_is_what_sympy_makes_of_it(size):
    now = {N: dim("t"), M: dim("a", max=9, multiple_of=3)}
    made, expected = with_sizes(sympy.sympify(size), now), sympy.sympify(size).xreplace(now)
    assert (made, str(made)) == (expected, str(expected))
    assert made + 1 - expected == 1
