"""The elementwise functions, a row for each.

To add one, add a row, as `docs/extending/function.md` shows it: the text of programs, `offcut` and `offcut.ops`, the interpreter, machine code, costs and the
plugins follow. A row without a writer in `offcut.backends.llvm` calls the C library's function of doubles, a lane at a
time; `vector_math` and `wide_math` there have a table of writers, by name, for functions that are computed in vectors.

The names of this module are the public ones, which editors show for `offcut` and `offcut.ops`. A name that begins with
``_`` has a public function written by hand: `maximum`, `minimum`, `power`.
"""

from __future__ import annotations

from math import inf as _inf

from offcut.core.function import row as _row

exp = _row("exp", "``e**{x}``, within {ulp} ULP (float32).", ulp=2, range=(0, _inf), cycles=5.5)
log = _row(
    "log",
    "The natural logarithm of `{x}`, within {ulp} ULP (float32); -inf of 0, NaN below.",
    cycles=12,
)
log1p = _row(
    "log1p",
    "``log(1 + {x})``, within {ulp} ULP (float32) also near 0; -inf of -1, NaN below.",
    cycles=12,
    machine="log",
)
tanh = _row(
    "tanh",
    "The hyperbolic tangent of `{x}`, within {ulp} ULP (float32).",
    ulp=2,
    range=(-1, 1),
    cycles=20,
)
erf = _row(
    "erf",
    "``2/sqrt(pi) * integral of exp(-t**2) from 0 to {x}``, within {ulp} ULP (float32).",
    ulp=2,
    range=(-1, 1),
    cycles=19,
)
sqrt = _row(
    "sqrt",
    "The square root of `{x}`, correctly rounded; NaN below 0.",
    ulp=0.5,
    range=(0, _inf),
    cycles=4,
    intrinsic="sqrt",
)
_TURN = "The {} of `{{x}}`, in radians, within {{ulp}} ULP (float32) of all that is finite."
sin = _row("sin", _TURN.format("sine"), range=(-1, 1), cycles=14)
cos = _row("cos", _TURN.format("cosine"), range=(-1, 1), cycles=14, machine="sin")
floor = _row(
    "floor",
    "The largest whole number that is at most `{x}`, as a float.",
    ulp=0,
    machine="other",
    intrinsic="floor",
)
ceil = _row(
    "ceil",
    "The smallest whole number that is at least `{x}`, as a float.",
    ulp=0,
    machine="other",
    intrinsic="ceil",
)
round = _row(
    "round",
    "The whole number nearest to `{x}`, as a float; the even one of two.",
    ulp=0,
    numpy="rint",
    mpmath="nint",
    machine="other",
    intrinsic="roundeven",
    mlir="math.roundeven",
    tirx="nearbyint",
    relax="",
)
absolute = _row(
    "abs",
    "The absolute value of `{x}`; the least integer of a type stays.",
    public="absolute",
    integers=True,
    ulp=0,
    mpmath="fabs",
    range=(0, _inf),
    machine="other",
    intrinsic="fabs",
    mlir="math.absf",
    tirx="fabs",
)
_minimum, _maximum = (
    _row(
        end,
        f"The {end}imum of `{{x}}` and `{{y}}`; NaN where either is NaN.",
        public="",
        arity=2,
        integers=True,
        ulp=0,
        numpy=f"{end}imum",
        machine="other",
        intrinsic=f"{end}imum",
        mlir=f"arith.{end}imumf",
        tirx="",
    )
    for end in ("min", "max")
)
_power = _row(
    "pow",
    "``{x}**{y}``, within {ulp} ULP (float32); 1 where `{y}` is 0, NaN where `{x}` is below 0 and `{y}` is not whole.",
    public="",
    arity=2,
    ulp=2,
    numpy="power",
    mpmath="power",
    cycles=45,
    machine="power",
    mlir="math.powf",
)
atan2 = _row(
    "atan2",
    "The angle of the point (`{y}`, `{x}`), in radians, within {ulp} ULP (float32); signs of zeros count.",
    arity=2,
    ulp=2,
    numpy="arctan2",
    onnx="",
    range=(-3.1415927410125732, 3.1415927410125732),
    cycles=14,
    machine="sin",
)
