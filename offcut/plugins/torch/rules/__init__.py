"""What each operator of aten is, among ours; importing this fills the table."""

from offcut.plugins.torch.rules import (
    arithmetic,
    convolutions,
    creation,
    functions,
    lookups,
    ordering,
    products,
    quantization,
    recurrent,
    reductions,
    rows,
    shapes,
    writes,
)

__all__ = [
    "arithmetic",
    "convolutions",
    "creation",
    "functions",
    "lookups",
    "ordering",
    "products",
    "quantization",
    "recurrent",
    "reductions",
    "rows",
    "shapes",
    "writes",
]
