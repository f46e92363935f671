"""What each operator of ONNX is; those that ONNX defines as functions need no entry."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.plugins.onnx.attention import ATTENTION
from offcut.plugins.onnx.elementwise import ELEMENTWISE, Operator
from offcut.plugins.onnx.functions import FUNCTIONS
from offcut.plugins.onnx.indexing import INDEXING
from offcut.plugins.onnx.normalization import NORMALIZATION
from offcut.plugins.onnx.products import PRODUCTS
from offcut.plugins.onnx.quantization import QUANTIZATION
from offcut.plugins.onnx.recurrent import RECURRENT
from offcut.plugins.onnx.reductions import REDUCTIONS
from offcut.plugins.onnx.resizing import RESIZING
from offcut.plugins.onnx.sampling import SAMPLING
from offcut.plugins.onnx.sequences import SEQUENCES
from offcut.plugins.onnx.shapes import SHAPES
from offcut.plugins.onnx.spectra import SPECTRA
from offcut.plugins.onnx.windows import WINDOWS

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
}
