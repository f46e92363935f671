"""What each operator of aten is, among ours; importing this fills the table."""

from offcut.plugins.torch.rules import (
    arithmetic,
    convolutions,
    functions,
    indexing,
    normalization,
    products,
    quantization,
    reductions,
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
