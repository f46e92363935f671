"""What is proved of a lowered schedule, from its program and its source alone."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.core.program import Alloc, Execution, For, Program, walk
from offcut.core.text.printer import format_expr, format_stmt
from offcut.core.walking import side_by_side
from offcut.errors import PartitionError
from offcut.polyhedral import Dependence, dependences
from offcut.proof import Certificate, Theorem, check_equal
from offcut.schedule.by_hand.nests import Nests

_WORDS = {
    "flow": ("writes", "reads"),
    "anti": ("reads", "writes"),
    "output": ("writes", "writes again"),
}


def prove(nests: Nests, program: Program, reassociate: bool = True) -> Certificate:
    """The theorems by which `program` computes what was described, for all sizes.

    The rewrites of stages, each by its equation; that `program` computes what `nests.source` does; and
    that loops whose iterations run together carry no dependence.

    reassociate  whether the terms of a declared sum may be added in any order

    Raises PartitionError with the smallest witness.
    """
    users = {name: user for user, name in nests.size_names}
    theorems = []
    for one in nests.rewrites:
        if one.groups and not reassociate:
            raise PartitionError(
                "prove",
                "cannot group the terms of a sum",
                at=one.primitive,
                because="reassociate=False: they are added in ascending order",
            )
        if one.alike is not None:
            check_equal(*one.alike, reassociate=reassociate, users=users)
        theorems.append(Theorem("substitution", one.equation, one.primitive))
    theorems += check_equal(nests.source, program, reassociate=reassociate, users=users)
    theorems += check_together(program, users)
    return Certificate(tuple(theorems))


def check_together(program: Program, users: Mapping[str, str]) -> list[Theorem]:
    """Refuse a parallel, vectorised or bound loop that carries a dependence.

    Theorem: no two iterations of the loop, the ones around it being the same, touch one element that
    either writes; but for a buffer whose window is allocated inside, which each of them has, and for
    the updates of a declared reduction where lanes run them, whose order is free.
    """
    loops = side_by_side(program)
    if not loops:
        return []
    reducing: set[str] = set()
    for dependence in dependences(program):
        loop = loops.get(dependence.path)
        if loop is None or _buffer(dependence) in _own(loop):
            continue
        if not (dependence.reduction and loop.execution is Execution.VECTOR and not loop.bound):
            raise _carried(program, loop, dependence, users)
        reducing.add(loop.iter)
    return [
        Theorem(
            "parallel",
            f"{_how(loop)}: no iteration meets another"
            + (" but in a reduction" if loop.iter in reducing else ""),
            f"loop {loop.iter}",
        )
        for loop in loops.values()
    ]


def _how(loop: For) -> str:
    return f"@bind({loop.bound})" if loop.bound is not None else f"@{loop.execution.value}"


def _own(loop: For) -> set[str]:
    return {stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc)}


def _buffer(dependence: Dependence) -> str:
    writer = dependence.target if dependence.kind == "anti" else dependence.source
    return writer.store.buffer


def _carried(
    program: Program, loop: For, dependence: Dependence, users: Mapping[str, str]
) -> PartitionError:
    sizes, first, second = dependence.witness
    given = ", ".join(
        f"{users.get(size.name, size.name)} = {value}"
        for size, value in zip(program.sizes, sizes, strict=True)
    )
    one, other = _WORDS[dependence.kind]
    source, target = dependence.source, dependence.target
    at = [
        ", ".join(f"{name} = {value}" for name, value in zip(s.iterators, point, strict=True))
        for s, point in ((source, first), (target, second))
    ]
    again = "it" if source.store == target.store else format_stmt(target.store)
    help_ = ("mark a loop that carries no dependence",)
    if dependence.reduction:
        help_ = (f"rfactor({loop.iter}) reduces in parts that run together",)
    return PartitionError(
        "prove",
        f"cannot run the iterations of {loop.iter} together",
        at=f"for {loop.iter} in {format_expr(loop.lo)}:{format_expr(loop.hi)}  {_how(loop)}",
        because=(f"with {given}, " if given else "")
        + ("" if dependence.certain else "as far as sets tell, ")
        + f"{format_stmt(source.store)} at {at[0]} {one} an element of {_buffer(dependence)} that "
        f"{again} {other} at {at[1]}",
        help=help_,
    )
