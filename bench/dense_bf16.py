"""Dense bfloat16 layers at every kind of M: offcut against every peer, and the limit.

    python bench/dense_bf16.py            # all of it: half an hour
    python bench/dense_bf16.py --quick    # a few M, two layers: under a minute

A constant packed B; sums in float32, operands and results in bfloat16. OpenVINO takes and gives
bfloat16 too; onnxruntime has no such product on this kind of processor.
"""

from __future__ import annotations

from layers import LAYERS, QUICK_LAYERS, QUICK_ROWS, ROWS, dense_groups

from offcut.experiment.bench import Group, main
from offcut.experiment.table import Asked

ASKED = Asked(mean=1.4, worst=0.95, share=0.55)


def groups(quick: bool) -> tuple[Group, ...]:
    """A group for each layer."""
    layers, rows = (QUICK_LAYERS, QUICK_ROWS) if quick else (LAYERS, ROWS)
    return dense_groups("bfloat16", layers, rows)


if __name__ == "__main__":
    main(__doc__ or "", groups, ASKED)
