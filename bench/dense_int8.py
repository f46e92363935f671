"""Dense layers in 8-bit integers at every kind of M: offcut against every peer, and the limit.

    python bench/dense_int8.py            # all of it: an hour
    python bench/dense_int8.py --quick    # a few M, one layer: under a minute

A constant packed B. Three products, each against the peers that have it: int8 × int8 and
uint8 × int8 with the int32 sums as the result, and uint8 × int8 dequantised to float32 by a zero
point, a scale, and a scale for each column.
"""

from __future__ import annotations

from layers import (
    LAYERS,
    QUICK_LAYERS,
    QUICK_ROWS,
    ROWS,
    dense_groups,
    dequantized_groups,
)

from offcut.experiment.bench import Group, main
from offcut.experiment.table import Asked

ASKED = Asked(mean=1.8, worst=1.0, share=0.50)


def groups(quick: bool) -> tuple[Group, ...]:
    """A group for each product and layer."""
    layers, rows = (QUICK_LAYERS[:1], QUICK_ROWS) if quick else (LAYERS, ROWS)
    return (
        *dense_groups("int8", layers, rows),
        *dense_groups("uint8", layers, rows),
        *dequantized_groups(layers, rows),
    )


if __name__ == "__main__":
    main(__doc__ or "", groups, ASKED)
