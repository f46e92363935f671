"""Sums of products: matrices, Einstein's notation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_letters

from offcut.graph.sizes.numbers import product
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import (
    Call,
    Element,
    KnownArray,
    Operand,
    Results,
    UnsupportedNode,
)
from offcut.plugins.onnx.rules.elementwise import Operator, scalar
from offcut.plugins.onnx.rules.reductions import emit_reduction
from offcut.plugins.onnx.rules.shapes import emit_unsqueeze
from offcut.plugins.operators.arithmetic import MAX_DETERMINANT_ROWS, determinants

BYTES = ("int8", "uint8")


def emit_matmul(g: Context, a: Operand, b: Operand) -> Operand:
    """``a @ b`` as numpy has it: a vector is a row before, a column after."""
    row, column = g.rank(a) == 1, g.rank(b) == 1
    dtype = g.dtype(a)
    if not g.rank(a) or not g.rank(b):
        raise UnsupportedNode("an operand has no axis")
    left = emit_unsqueeze(g, a, [0]) if row else a
    right = emit_unsqueeze(g, b, [1]) if column else b
    if g.rank(right) == 2 and g.rank(left) > 2:
        result: Operand = g.op("dense", left, right)
    else:
        result = g.op("matmul", left, right)
    result = g.cast(result, dtype)
    shape = list(g.shape(result))
    if row:
        del shape[-1 if column else -2]
    if column:
        del shape[-1]
    return g.reshape(result, shape)


def _gemm(g: Context, call: Call) -> Results:
    """``alpha * a @ b + beta * c``."""
    a, b, c = call[0], call[1], call.input(2)
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    if call.get("transA", 0):
        a = g.transpose(a, [1, 0])
    right = bool(call.get("transB", 0))
    columns = g.shape(b)[0 if right else 1]
    bias = c is not None and g.shape(c) == (columns,) and alpha == beta == 1
    result: Operand = g.op("dense", a, b, **({"bias": c} if bias else {}), transpose_w=right)
    if alpha != 1:
        result = scalar(g, "multiply", result, alpha)
    if c is None or bias or beta == 0:
        return result
    return g.binary("add", result, c if beta == 1 else scalar(g, "multiply", c, beta))


def _einsum(g: Context, call: Call) -> Results:
    """Two operands at a time: letters that only these have are summed."""
    text = call.get("equation").replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if not arrow:
        letters = inputs.replace("...", "").replace(",", "")
        once = (one for one in set(letters) if letters.count(one) == 1)
        output = ("..." if "." in inputs else "") + "".join(sorted(once))
    terms, output = _spell_terms(terms, output, [g.rank(one) for one in call.present])
    parts = [_diagonals(g, term, one) for term, one in zip(terms, call.present, strict=True)]
    while len(parts) > 1:
        (one, x), (other, y), *parts = parts
        later = set(output).union(*(term for term, _ in parts))
        parts.insert(0, _pair(g, (one, x), (other, y), later))
    term, x = parts[0]
    gone = [place for place, letter in enumerate(term) if letter not in output]
    x = emit_reduction(g, "sum", x, gone, False)
    term = "".join(letter for letter in term if letter in output)
    return g.transpose(x, [term.index(letter) for letter in output])


def _spell_terms(terms: list[str], output: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Terms with a letter for each axis: an ellipsis stands for what the others leave of the rank, from the last on."""
    free = [one for one in ascii_letters if one not in "".join([*terms, output])]
    covered = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]

    def spelled(term: str, count: int) -> str:
        return term.replace("...", "".join(reversed(free[:count])))

    every = [spelled(term, count) for term, count in zip(terms, covered, strict=True)]
    return every, spelled(output, max(covered))


def _diagonals(g: Context, term: str, x: Operand) -> tuple[str, Operand]:
    """Return an operand whose letters are named once: of a letter that is named twice, its diagonal."""
    for letter in term:
        if term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            rest = [place for place in range(len(term)) if place not in (first, second)]
            places = g.op("iota", g.shape(x)[first], "int64")
            transposed = g.transpose(x, [*rest, first, second])
            line = g.op("take", transposed, (places, places), axis=len(rest))
            return _diagonals(g, "".join(term[place] for place in rest) + letter, line)
    return term, x


def _pair(
    g: Context, first: tuple[str, Operand], second: tuple[str, Operand], later: set[str]
) -> tuple[str, Operand]:
    """Return the product of two terms, as one of matrices with what both have in front."""
    (one, x), (other, y) = first, second
    x, one = _alone(g, x, one, set(other) | later)
    y, other = _alone(g, y, other, set(one) | later)
    both = [letter for letter in one if letter in other and letter in later]
    inner = [letter for letter in one if letter in other and letter not in later]
    rows = [letter for letter in one if letter not in other]
    columns = [letter for letter in other if letter not in one]
    size = dict(zip(other, g.shape(y), strict=True)) | dict(zip(one, g.shape(x), strict=True))
    x = g.transpose(x, [one.index(letter) for letter in (*both, *rows, *inner)])
    y = g.transpose(y, [other.index(letter) for letter in (*both, *inner, *columns)])

    def extents(letters: Sequence[str]) -> list[Element]:
        return [size[letter] for letter in letters]

    m, k, n = (product(extents(letters)) for letters in (rows, inner, columns))
    x = g.reshape(x, [*extents(both), m, k])
    y = g.reshape(y, [*extents(both), k, n])
    result = emit_matmul(g, x, y)
    letters = [*both, *rows, *columns]
    return "".join(letters), g.reshape(result, extents(letters))


def _alone(g: Context, x: Operand, term: str, letters: set[str]) -> tuple[Operand, str]:
    """Return a term without the letters that nothing else has."""
    gone = [place for place, letter in enumerate(term) if letter not in letters]
    total = emit_reduction(g, "sum", x, gone, False)
    return total, "".join(letter for letter in term if letter in letters)


def without_zero(g: Context, x: Operand, zero: Operand | None, axis: int = -1) -> Operand:
    """``x - zero`` in int32, a zero point for all or for each place of an axis. Bytes that are known stay bytes, for products of them."""
    wide = g.op("cast", x, "int32") if g.dtype(x) in BYTES else g.cast(x, "int32")
    if zero is None or (isinstance(zero, KnownArray) and not zero.array.any()):
        return wide
    points = g.cast(zero, "int32")
    if g.rank(points) == 1 and g.shape(points) not in ((1,), g.shape(x)):
        rank, place = g.rank(x), g.axis(x, axis)
        points = g.reshape(points, [g.shape(points)[0] if n == place else 1 for n in range(rank)])
    elif g.shape(points) == (1,):
        points = g.reshape(points, [])
    return g.binary("subtract", wide, points)


def integer_matmul(
    g: Context, a: Operand, a_zero: Operand | None, b: Operand, b_zero: Operand | None
) -> Operand:
    """Return ``(a - a_zero) @ (b - b_zero)`` in int32."""
    return emit_matmul(g, without_zero(g, a, a_zero, -2), without_zero(g, b, b_zero, -1))


def _determinant(g: Context, call: Call) -> Results:
    order = g.whole(g.shape(call[0])[-1], "the rows of a matrix")
    result: Operand | None = determinants(g, call[0])
    if result is None:
        raise UnsupportedNode(f"the determinant of {order} rows", f"1 to {MAX_DETERMINANT_ROWS}")
    return result


PRODUCTS: Mapping[str, Operator] = {
    "Det": _determinant,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": lambda g, call: emit_matmul(g, call[0], call[1]),
    "MatMulInteger": lambda g, call: integer_matmul(
        g, call[0], call.input(2), call[1], call.input(3)
    ),
}
