"""Elementary functions that offcut has not: those that plugins compose for all hosts."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.core.dtypes import FLOATS
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import Call, Results, UnsupportedNode
from offcut.plugins.onnx.rules.elementwise import Operator
from offcut.plugins.operators import functions as special


def _composed(formula: special.Formula, in_double: bool) -> Operator:
    """Return a composed function; one that cancels near 0 is calculated in float64 for narrower floats."""

    def rule(g: Context, call: Call) -> Results:
        x, dtype = call[0], g.dtype(call[0])
        if in_double and (dtype not in FLOATS or dtype == "float64"):
            raise UnsupportedNode(f"it is not exact in {dtype}", "float32 and narrower")
        wide = g.cast(x, "float64") if in_double else g.in_float32(x)
        return g.cast(formula(g.op, g.ref(wide)), dtype)

    return rule


FUNCTIONS: Mapping[str, Operator] = {
    name: _composed(formula, formulas is special.IN_DOUBLE)
    for formulas in (special.IN_DOUBLE, special.OF_ANY_FLOAT)
    for (_, name), formula in formulas.items()
    if name
}
