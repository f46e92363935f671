"""Floored quotients by a product and a shift, exact on a range.

With ``y = x + c * d >= 0``, ``m = ceil(2**s / d)`` and ``e = m * d - 2**s``::

    floor(x / d) = floor(y * m / 2**s) - c        where  y * e < 2**s

for ``y * m / 2**s`` is above ``y / d`` by ``y * e / (d * 2**s)``, less than the ``1 / d`` by which it lies below
the next whole number at least. The product must be an int32.

Source: Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994; theirs has the
upper half of a product, which the unit has not.
"""

from __future__ import annotations

from offcut.backends.accelerator.isa import AluOp

Steps = tuple[tuple[AluOp, int], ...]


def to_multiply_shift(divisor: int, low: int, high: int) -> Steps | None:
    """The operations that divide each whole number from `low` to `high`; None where none are exact there.

    >>> divided(64, -(2**31), 2**31 - 1)
    ((<AluOp.SHR: 'shr'>, 6),)
    >>> divided(3, -128, 127)
    ((<AluOp.ADD: 'add'>, 129), (<AluOp.MUL: 'mul'>, 171), (<AluOp.SHR: 'shr'>, 9), (<AluOp.ADD: 'add'>, -43))
    """
    if divisor & divisor - 1 == 0:
        return ((AluOp.SHR, divisor.bit_length() - 1),)
    below = max(-(low // divisor), 0)
    most = high + below * divisor
    for shift in range(31):
        factor = -(-(1 << shift) // divisor)
        error = factor * divisor - (1 << shift)
        if most * error < 1 << shift and most * factor < 1 << 31:
            around = ((AluOp.ADD, below * divisor),) if below else ()
            behind = ((AluOp.ADD, -below),) if below else ()
            return (*around, (AluOp.MUL, factor), (AluOp.SHR, shift), *behind)
    return None


def exact_range(divisor: int) -> int:
    """The greatest `c` for which numbers from ``-c`` to ``c`` are divided."""
    low, high = 0, 1 << 31
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if to_multiply_shift(divisor, -middle, middle) is None else (middle, high)
        )
    return low
