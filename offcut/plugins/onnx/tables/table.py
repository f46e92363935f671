"""What each operator of ONNX is; those that ONNX defines as functions need no entry."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.plugins.onnx.images.resizing import RESIZING
from offcut.plugins.onnx.images.sampling import SAMPLING
from offcut.plugins.onnx.images.windows import WINDOWS
from offcut.plugins.onnx.rules.attention import ATTENTION
from offcut.plugins.onnx.rules.elementwise import ELEMENTWISE, OF_ROWS, Operator
from offcut.plugins.onnx.rules.functions import FUNCTIONS
from offcut.plugins.onnx.rules.indexing import INDEXING
from offcut.plugins.onnx.rules.normalization import NORMALIZATION
from offcut.plugins.onnx.rules.products import PRODUCTS
from offcut.plugins.onnx.rules.recurrent import RECURRENT
from offcut.plugins.onnx.rules.reductions import REDUCTIONS
from offcut.plugins.onnx.rules.sequences import SEQUENCES
from offcut.plugins.onnx.rules.shapes import SHAPES
from offcut.plugins.onnx.rules.spectra import SPECTRA
from offcut.plugins.onnx.tables.quantization import QUANTIZATION

TABLE: Mapping[str, Operator] = {
    **ATTENTION,
    **ELEMENTWISE,
    **FUNCTIONS,
    **INDEXING,
    **NORMALIZATION,
    **PRODUCTS,
    **QUANTIZATION,
    **RECURRENT,
    **REDUCTIONS,
    **RESIZING,
    **SAMPLING,
    **SEQUENCES,
    **SHAPES,
    **SPECTRA,
    **WINDOWS,
    **OF_ROWS,
}
