"""Prices of the ways of a nest, for `price.toml`."""

from typing import Any

import offcut as oc


def tiles(loops: oc.Program) -> float:
    """Return a nanosecond for each tile of the text."""
    return 1e-9 * sum(isinstance(one, oc.ir.Tile) for one in oc.ir.walk(loops))


def twice(loops: oc.Program, sizes: Any, built_in: Any) -> Any:
    """Return twice the built-in price, which chooses alike."""
    return 2 * built_in
