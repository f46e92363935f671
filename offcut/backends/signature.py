"""Compute the signature of a program: its arguments and results, in the users' names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from offcut.backends.abi import AffineFact, Argument, Signature
from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import Binary, Compare, Const, Expr, Var, rewrite, substitute
from offcut.core.extents import is_checked
from offcut.core.program import Buffer, Kind, Program, Size
from offcut.core.text.printer import format_expr
from offcut.describe.request import Array
from offcut.errors import DescribeError
from offcut.partition import Users


def signature_of(program: Program, users: Users) -> Signature:
    """Return the signature of a program: inputs and outputs in the order of their declaration.

    An array that a program updates is an input and an output.

    Raises DescribeError for a shape or a promise that a call cannot check.
    """
    sizes_of = users.of_sizes
    user_sizes: dict[str, Expr] = {name: Var(user) for name, user in sizes_of.items()}
    labels = {buffer: label for label, buffer in users.buffers}

    def arguments(buffers: Iterable[Buffer]) -> tuple[Argument, ...]:
        return tuple(
            Argument(
                labels[buffer.name],
                buffer.dtype,
                tuple(_extent(extent, user_sizes, labels[buffer.name]) for extent in buffer.shape),
            )
            for buffer in buffers
        )

    inputs, outputs = boundary_buffers(program.buffers)
    updated_pairs = ((inputs.index(b), outputs.index(b)) for b in inputs if b.kind is Kind.INOUT)
    sizes = tuple(Size(sizes_of[s.name], s.min, s.max, s.multiple_of) for s in program.sizes)
    facts = (part for fact in program.assumptions for part in conjuncts(fact))
    relations = [relation_of(fact, sizes_of) for fact in facts]
    return Signature(
        program.name,
        arguments(inputs),
        arguments(outputs),
        sizes,
        tuple(relation for relation in relations if relation is not None),
        tuple(updated_pairs),
    )


def boundary_buffers(buffers: Iterable[Buffer]) -> tuple[list[Buffer], list[Buffer]]:
    """Return the buffers that a call takes, and those that it returns; an updated buffer is in both."""
    all_buffers = tuple(buffers)
    return (
        [buffer for buffer in all_buffers if buffer.kind in (Kind.INPUT, Kind.INOUT)],
        [buffer for buffer in all_buffers if buffer.kind in (Kind.OUTPUT, Kind.INOUT)],
    )


def run_by_name(
    program: Program,
    run: Callable[[dict[str, Array], dict[str, int]], Mapping[str, Array]],
    inputs: Sequence[Array],
    sizes: Mapping[str, int],
) -> list[Array]:
    """Run a program on the arguments of a call; return its results in the order of their declaration.

    run     takes arrays by buffer and sizes by the program's names; returns arrays by buffer
    inputs  in the order of their declaration
    sizes   in the order of the program's, by the users' names
    """
    input_buffers, output_buffers = boundary_buffers(program.buffers)
    arrays = dict(zip((buffer.name for buffer in input_buffers), inputs, strict=True))
    values = dict(zip((size.name for size in program.sizes), sizes.values(), strict=True))
    results = run(arrays, values)
    return [results[buffer.name] for buffer in output_buffers]


def _extent(expr: Expr, users: Mapping[str, Expr], tensor: str) -> Expr:
    """Return an extent over the sizes by the users' names, with as few operations as a call can have: ``a % k`` is ``a - k*(a//k)``,
    ``a//2//3`` is ``a//6``, and ``a//k + 1`` is ``(a + k)//k``.
    """

    def rule(node: Expr) -> Expr | None:
        match node:
            case Binary("%", a, Const(divisor, _)):
                return ix.sub(a, ix.mul(int(divisor), ix.floordiv(a, int(divisor))))
            case Binary("//", Binary("//", a, Const(inner, _)), Const(divisor, _)):
                return ix.floordiv(a, int(inner) * int(divisor))
        return None

    extent = ix.simplify(rewrite(substitute(expr, users), rule))
    if not is_checked(extent):
        raise _unsupported_extent(expr, tensor)
    form = ix.to_linear(extent)
    match form.terms:
        case ((Binary("//", a, Const(divisor, _) as by), 1),) if form.const:
            return Binary("//", ix.add(a, form.const * int(divisor)), by)
    return extent


def _unsupported_extent(expr: Expr, tensor: str) -> DescribeError:
    return DescribeError(
        "compile",
        f"cannot take the extent {format_expr(expr)} of an argument",
        at=f"tensor {tensor}",
        because="a call checks sums of multiples of sizes and of their quotients by positive ints",
        help=("2*n + 1, (n + 3)//4 and 2*(n//2) are accepted",),
    )


def relation_of(fact: Expr, users: Mapping[str, str]) -> AffineFact | None:
    """Return a promise as a call checks it, sizes by the users' names; None where it holds for all.

    Raises DescribeError for one that is not affine.
    """
    text = format_expr(substitute(fact, {name: Var(user) for name, user in users.items()}))
    if isinstance(fact, Const):
        return None
    if not isinstance(fact, Compare):
        raise DescribeError("compile", f"cannot check {text} at a call", because="it is not affine")
    a, b = ix.to_linear(fact.a), ix.to_linear(fact.b)
    match fact.op, a.terms, b.terms:
        case "==", ((Binary("%", inner, Const(modulus, _)), 1),), () if a.const == 0:
            form = ix.to_linear(inner)
            return _terms("mod", form.terms, form.const - b.const, users, text, int(modulus))
        case (("<=" | "<" | ">=" | ">" | "==" as op), _, _):
            sign = -1 if op in ("<=", "<") else 1
            coefficients = dict(a.terms)
            for atom, factor in b.terms:
                coefficients[atom] = coefficients.get(atom, 0) - factor
            terms = tuple((atom, sign * factor) for atom, factor in coefficients.items() if factor)
            const = sign * (a.const - b.const) - (1 if op in ("<", ">") else 0)
            return _terms("==" if op == "==" else ">=", terms, const, users, text)
    raise DescribeError("compile", f"cannot check {text} at a call", because="it is not affine")


def _terms(
    kind: str,
    terms: tuple[tuple[Expr, int], ...],
    const: int,
    users: Mapping[str, str],
    text: str,
    modulus: int = 1,
) -> AffineFact:
    size_terms = []
    for atom, factor in terms:
        if not isinstance(atom, Var):
            raise DescribeError(
                "compile", f"cannot check {text} at a call", because="it is not affine"
            )
        size_terms.append((users[atom.name], factor))
    return AffineFact(kind, const, tuple(size_terms), text, modulus)
