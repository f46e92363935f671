"""The functions of elements: a row each, which is all that most of offcut knows of them.

To add one, add a row: the text of programs, `offcut` and `offcut.ops`, the interpreter, machine code, costs and the
plugins follow. A row without a writer in `offcut.backends.llvm` calls the C library's function of doubles, a lane at a
time; `vector_math` and `wide_math` there have a table of writers, by name, for those that are computed in vectors.

The names of this module are the public ones: editors take them for those of `offcut` and of `offcut.ops`. A name that
begins with ``_`` has a public function written by hand: `maximum`, `minimum`, `power`.
"""

from __future__ import annotations

from math import inf as _inf

from offcut.core.function import Function as _Function

exp = _Function(
    "exp",
    "``e**{x}``, within {ulp} ULP (float32).",
    ulp=2,
    range=(0, _inf),
    cycles=5.5,
    aten="exp",
    onnx="Exp",
    mlir="math.exp",
    tirx="exp",
    relax="exp",
)
log = _Function(
    "log",
    "The natural logarithm of `{x}`, within {ulp} ULP (float32); -inf of 0, NaN below.",
    cycles=12,
    aten="log",
    onnx="Log",
    mlir="math.log",
    tirx="log",
    relax="log",
)
log1p = _Function(
    "log1p",
    "``log(1 + {x})``, within {ulp} ULP (float32) also near 0; -inf of -1, NaN below.",
    cycles=12,
    machine="log",
    aten="log1p",
    mlir="math.log1p",
    tirx="log1p",
)
tanh = _Function(
    "tanh",
    "The hyperbolic tangent of `{x}`, within {ulp} ULP (float32).",
    ulp=2,
    range=(-1, 1),
    cycles=20,
    aten="tanh",
    onnx="Tanh",
    mlir="math.tanh",
    tirx="tanh",
    relax="tanh",
)
erf = _Function(
    "erf",
    "``2/sqrt(pi) * integral of exp(-t**2) from 0 to {x}``, within {ulp} ULP (float32).",
    ulp=2,
    range=(-1, 1),
    cycles=19,
    aten="erf",
    onnx="Erf",
    mlir="math.erf",
    tirx="erf",
    relax="erf",
)
sqrt = _Function(
    "sqrt",
    "The square root of `{x}`, correctly rounded; NaN below 0.",
    ulp=0.5,
    range=(0, _inf),
    cycles=4,
    intrinsic="sqrt",
    aten="sqrt",
    onnx="Sqrt",
    mlir="math.sqrt",
    tirx="sqrt",
    relax="sqrt",
)
sin = _Function(
    "sin",
    "The sine of `{x}`, in radians, within {ulp} ULP (float32) of all that is finite.",
    range=(-1, 1),
    cycles=14,
    aten="sin",
    onnx="Sin",
    mlir="math.sin",
    tirx="sin",
    relax="sin",
)
cos = _Function(
    "cos",
    "The cosine of `{x}`, in radians, within {ulp} ULP (float32) of all that is finite.",
    range=(-1, 1),
    cycles=14,
    machine="sin",
    aten="cos",
    onnx="Cos",
    mlir="math.cos",
    tirx="cos",
    relax="cos",
)
floor = _Function(
    "floor",
    "The largest whole number that is at most `{x}`, as a float.",
    ulp=0,
    machine="other",
    intrinsic="floor",
    aten="floor",
    onnx="Floor",
    mlir="math.floor",
    tirx="floor",
    relax="floor",
)
ceil = _Function(
    "ceil",
    "The smallest whole number that is at least `{x}`, as a float.",
    ulp=0,
    machine="other",
    intrinsic="ceil",
    aten="ceil",
    onnx="Ceil",
    mlir="math.ceil",
    tirx="ceil",
    relax="ceil",
)
round = _Function(
    "round",
    "The whole number nearest to `{x}`, as a float; the even one of two.",
    ulp=0,
    numpy="rint",
    mpmath="nint",
    machine="other",
    intrinsic="roundeven",
    aten="round",
    onnx="Round",
    mlir="math.roundeven",
    tirx="nearbyint",
)
absolute = _Function(
    "abs",
    "The absolute value of `{x}`; the least integer of a type stays.",
    public="absolute",
    integers=True,
    ulp=0,
    mpmath="fabs",
    range=(0, _inf),
    machine="other",
    intrinsic="fabs",
    aten="abs",
    onnx="Abs",
    mlir="math.absf",
    tirx="fabs",
    relax="abs",
)
_minimum = _Function(
    "min",
    "The smaller of `{x}` and `{y}`; NaN where either is NaN.",
    public=None,
    arity=2,
    integers=True,
    ulp=0,
    numpy="minimum",
    machine="other",
    intrinsic="minimum",
    mlir="arith.minimumf",
)
_maximum = _Function(
    "max",
    "The larger of `{x}` and `{y}`; NaN where either is NaN.",
    public=None,
    arity=2,
    integers=True,
    ulp=0,
    numpy="maximum",
    machine="other",
    intrinsic="maximum",
    mlir="arith.maximumf",
)
_power = _Function(
    "pow",
    "``{x}**{y}``, within {ulp} ULP (float32); 1 where `{y}` is 0, NaN where `{x}` is below 0 and `{y}` is not whole.",
    public=None,
    arity=2,
    ulp=2,
    numpy="power",
    mpmath="power",
    cycles=45,
    machine="power",
    mlir="math.powf",
    tirx="pow",
)
