"""The predicted seconds of tiles of any height, the tallest that can be asked for too."""

from __future__ import annotations

import pytest

from offcut.backends.cpu.machine import isa
from offcut.backends.cpu.microkernels.available import families
from offcut.core import index as ix
from offcut.costmodel import tile_price
from tests.agree import nearly
from tests.facade import evaluate

kernel = families(isa.host())[0].microkernel


def seconds(height: int, tile: int) -> float:
    price = tile_price(kernel, isa.host().machine)([(ix.const(3), ix.const(height))], tile)
    return float(evaluate(price, {}))


@pytest.mark.parametrize("height", [0, 1, kernel.max_rows, kernel.max_rows + 1, 64])
def test_a_height_costs_the_same_among_tiles_of_any_largest_height(height: int) -> None:
    assert seconds(height, 64) == nearly(seconds(height, 2**31 - 1))


def test_taller_tiles_than_a_microkernel_cost_their_share_of_rows() -> None:
    tallest = kernel.max_rows
    assert seconds(5 * tallest, 2**31 - 1) == nearly(5 * seconds(tallest, tallest))
