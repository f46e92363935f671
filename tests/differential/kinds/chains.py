"""Element by element: every operator of the language, in chains, on arrays of one to three axes."""

from __future__ import annotations

from ..drawing import Draw, Drawn, listed, nest

FLOATS = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int32", "int64", "int8", "uint8")
SMOOTH = ("exp", "log", "tanh", "erf", "sqrt")


class Values:
    """Expressions of one element type over `reads`; `smooth`: with functions that round."""

    def __init__(
        self, draw: Draw, dtype: str, reads: list[str], axes: list[str], smooth: bool
    ) -> None:
        self.draw, self.dtype, self.reads, self.axes, self.smooth = draw, dtype, reads, axes, smooth

    @property
    def real(self) -> bool:
        return self.dtype in FLOATS

    def leaf(self) -> str:
        pick = self.draw.pick
        literals = ["0", "1", "2", "3"] + (["0.5", "-1.5", "2.0"] if self.real else [])
        choices = [*self.reads * 3, pick(*literals)]
        if self.axes and self.dtype not in ("int8", "uint8", "bfloat16", "float16"):
            choices.append(f"{self.dtype}({pick(*self.axes)})")
        return pick(*choices)

    def value(self, depth: int) -> str:
        if depth == 0 or self.draw.chance(0.15):
            return self.leaf()
        a = self.value(depth - 1)
        op = self.draw.pick(
            *"+-*", "min", "max", "where", "abs", "neg", "cast", "//", "%", "/", "f", "f"
        )
        if op in "+-*" and op:
            return f"({a} {op} {self.value(depth - 1)})"
        if op in ("min", "max"):
            return f"{op}({a}, {self.value(depth - 1)})"
        if op == "where":
            return f"where({self.condition(depth - 1)}, {a}, {self.value(depth - 1)})"
        if op in ("//", "%") and (not self.real or self.draw.chance(0.02)):
            return f"({self.leaf()} {op} {self.draw.pick(2, 3, 4, 7)})"
        if op == "cast":
            return self.cast(a)
        if op == "/" and self.smooth:
            return f"({a} / (abs({self.leaf()}) + 1))"
        if op == "f" and self.smooth:
            name = self.draw.pick(*SMOOTH)
            inner = (
                f"abs({a}) + 1"
                if name in ("log", "sqrt")
                else f"min({a}, 2)"
                if name == "exp"
                else a
            )
            return f"{name}({inner})"
        if op == "neg" and self.dtype != "uint8":
            return f"(-{a})"
        return f"abs({a})" if self.dtype != "uint8" else a

    def cast(self, a: str) -> str:
        other = self.draw.pick(
            *(("float64", "float32") if self.real else ("int32", "int64", "float64"))
        )
        return a if other == self.dtype else f"{self.dtype}({other}({a}))"

    def condition(self, depth: int) -> str:
        pick = self.draw.pick
        op = pick("<", "<=", ">", ">=", "==", "!=", "!=")
        read = pick(*self.reads)
        found = f"{read} {op} {pick(*self.reads, '0', '1')}"
        if self.axes and self.draw.chance(0.4):
            found = f"{pick(*self.axes)} {op} {pick('1', '3', *self.axes)}"
        if depth and self.draw.chance(0.3):
            return pick(
                f"({found} and {self.condition(0)})",
                f"({found} or {self.condition(0)})",
                f"(not {found})",
            )
        return found


def contracted(body: list[str]) -> bool:
    """Whether a product may be added to a sum in one rounding."""
    return any(op in line for line in body for op in (" += ", " -= "))


def chain(draw: Draw) -> Drawn:
    """One to four statements in one nest, some over what the ones before left."""
    dtype = draw.pick(*FLOATS, *INTEGERS)
    smooth = dtype in FLOATS and draw.chance(0.4)
    rank = draw.pick(1, 1, 2, 2, 3)
    axes, extents = (
        list("ijk"[:rank]),
        [draw.pick("n", "n", "m", "1", "4", "17") for _ in range(rank)],
    )
    extents = [e if e.isdigit() else "nml"[place] for place, e in enumerate(extents)]
    found = Drawn([f"size {e} in 0:{draw.pick(60, 999)}" for e in extents if not e.isdigit()])
    shape, at = listed(extents), listed(axes)
    found.head += [
        f"input A: {dtype}[{shape}]",
        f"input B: {dtype}[{listed(extents[::-1])}]",
        f"input V: {dtype}[{extents[-1]}]",
    ]
    found.head += [f"{draw.pick('inout', 'output')} O: {dtype}[{shape}]"]
    reads = [f"A[{at}]", f"B[{listed(axes[::-1])}]", f"V[{axes[-1]}]"]
    values = Values(draw, dtype, reads, axes, smooth)
    body = []
    local = draw.chance(0.3)
    if local:
        found.head.append(f"local t: {dtype}[]")
        body.append(f"t[] = {values.value(2)}")
        reads.append("t[]")
    body.append(f"O[{at}] = {values.value(draw.pick(1, 2, 3))}")
    reads.append(f"O[{at}]")
    if draw.chance(0.4):
        other = draw.pick(dtype, "float32", "int32", "float64", "bfloat16", "float16", "uint8")
        found.head.append(f"output P: {other}[{shape}]")
        value = values.value(2)
        body.append(f"P[{at}] = {value if other == dtype else f'{other}({value})'}")
    if draw.chance(0.3):
        op = draw.pick("=", "+=", "-=", "max=", "min=")
        body.append(f"O[{at}] {op} {values.value(2)}")
    loops = [f"for {a} in 0:{e}" for a, e in zip(axes, extents, strict=True)]
    if draw.chance(0.2):
        loops = [head + draw.pick("", ":2") for head in loops]
    found.body = nest(draw.mixed(loops), body)
    if smooth:
        found.data = "smooth"
    elif dtype in ("float16", "bfloat16", "float64") and draw.chance(0.6) and not contracted(body):
        found.data = "rough"
    elif dtype in FLOATS and draw.chance(0.7):
        found.data = "specials"
    return found
