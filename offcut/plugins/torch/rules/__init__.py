"""What each operator of aten is, among ours; importing this fills the table."""

from offcut.plugins.torch.rules import (
    arithmetic,
    convolutions,
    creation,
    functions,
    indexing,
    normalization,
    ordering,
    products,
    quantization,
    recurrent,
    reductions,
    scatter,
    shapes,
)

__all__ = [
    "arithmetic",
    "convolutions",
    "creation",
    "functions",
    "indexing",
    "normalization",
    "ordering",
    "products",
    "quantization",
    "recurrent",
    "reductions",
    "scatter",
    "shapes",
]
