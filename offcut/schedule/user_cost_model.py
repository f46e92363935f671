"""A cost model of one's own: the variants of a schedule that compete, priced by a function of their loops."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import sympy

from offcut.core import program
from offcut.core.analysis import analysis
from offcut.core.expr import Expr, Var, substitute, variables
from offcut.core.interpret.values import evaluate
from offcut.core.program import Option, Program
from offcut.core.sizes import dim, no_real, real_of
from offcut.core.text.printer import format_expr
from offcut.errors import DescribeError, PartitionError, blamed_on_another
from offcut.schedule.checks import check_cost
from offcut.schedule.decisions import Alternative, Choose, Schedule, Step

# the loops of one variant to run a nest, and, where it takes three arguments, the sizes by name and the built-in price of that variant
# -> seconds of a call: a number, or an expression over the sizes
OwnPrice: TypeAlias = Callable[[Program], Any] | Callable[[Program, Mapping[str, Any], Any], Any]


def with_user_costs(
    schedule: Schedule, loops: Program, price: OwnPrice, users: Mapping[str, str]
) -> Schedule:
    """Return `schedule` whose variants that compete cost what `price` says.

    loops   what `schedule` makes, before loops are marked: a choice for each nest of several variants
    users   the program's names of the sizes, by the users'

    Raises DescribeError for what is no cost, PartitionError for one that is not told by the sizes.
    """
    choices = iter(analysis(loops).of(program.Choose))

    def alternatives(step: Choose) -> Iterator[Alternative]:
        for one, option in zip(step.options, next(choices).options, strict=True):
            yield replace(one, cost=_cost(loops, option, price, users))

    steps: list[Step] = [
        Choose(tuple(alternatives(step)))
        if isinstance(step, Choose) and len(step.options) > 1
        else step
        for step in schedule.steps
    ]
    return replace(schedule, steps=tuple(steps))


def _no_price(cost: Any) -> str:
    """Why it is none."""
    part = no_real(cost)
    if part is None or part.is_number:
        return "a price is seconds: a number that is at least 0, or an expression over the sizes"
    at_fault = "" if part == cost else f"{part} in it: "
    return (
        f"{at_fault}a call evaluates sums, products, quotients, powers by integers of at most 8, Min and Max of the sizes, "
        "and // and % of them by integers"
    )


_BUILT_IN = "built-in price"  # no size has this name
_SYMBOL = sympy.Symbol(_BUILT_IN, real=True, nonnegative=True)


def _more(price: OwnPrice, loops: Program, users: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the sizes by the user's names, and a symbol for the built-in price, for a function of three arguments."""
    try:
        inspect.signature(price).bind(None, None, None)
    except (TypeError, ValueError):
        return ()
    known = {size.name: size for size in loops.sizes}
    sizes = {
        user: dim(user, min=known[name].min, max=known[name].max) for user, name in users.items()
    }
    return sizes, _SYMBOL


def _cost(loops: Program, option: Option, price: OwnPrice, users: Mapping[str, str]) -> Expr:
    """What `price` says of an option, over the program's sizes."""

    def refused(did: str) -> DescribeError:
        what, help = f"cannot price {option.label}", ("lambda loops: 2e-9 * n",)
        return DescribeError("compile", what, because=f"price= {did}", help=help)

    with blamed_on_another(refused):
        price_value = price(replace(loops, body=option.body), *_more(price, loops, users))
    try:
        node = None if isinstance(price_value, bool) else real_of(price_value, (_BUILT_IN,))
    except OverflowError:
        node = None
    if node is not None:
        own = {name: Var(user) for user, name in users.items()}
        node = substitute(node, {_BUILT_IN: substitute(option.cost, own)})
    if node is None or (not variables(node) and evaluate(node, {}) < 0):
        raise DescribeError(
            "compile",
            f"cannot take {price_value!r} as the price of {option.label}",
            because=_no_price(price_value),
            help=("lambda loops: 2e-9 * n", "lambda loops: 1e-9 * n**2 + 3e-9 * sympy.Max(n, 64)"),
        )
    called: dict[str, Expr] = {name: Var(user) for user, name in users.items()}
    user_of = {name: user for user, name in users.items()}
    sizes = [replace(size, name=user_of.get(size.name, size.name)) for size in loops.sizes]
    try:
        check_cost(node, sizes, [substitute(fact, called) for fact in loops.assumptions])
    except PartitionError as undecided:
        what = f"cannot take {format_expr(node)} as the price of {option.label}"
        raise PartitionError(
            "compile", what, because=undecided.because, help=undecided.help
        ) from undecided
    return substitute(node, {user: Var(name) for user, name in users.items()})
