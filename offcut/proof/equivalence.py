"""Two loop programs in; the theorems that they compute the same at all sizes out, or a witness.

Most cuts are proved by reading the two texts side by side (`structure`). Where that fails it is
tried once more: each program without the copies that the other one has not (`copies`) and
without windows (`window_expansion`), the source with loops joined (`loop_fusion`) and sums ordered (`reduction_init`) as
they are there. Where they differ in shape all the same, both programs are read back into statement
instances. Each store of the emitted program is matched to a store of the source (`matching`),
which says of which source instance an emitted one is. Then

- where every instance runs exactly once, on the same elements, it is enough that any two that touch
  one element, one of them writing it, keep their order (`Order`);
- otherwise, and to say what is wrong, every read must see the value that the source's read sees: the
  last write before it, mapped to the source, is the source's last write, and so for what is left in
  every result (`DataFlow`). Repeated and recomputed instances, copies, and windows need this one. By
  induction over the time of the emitted program each instance then computes the source's value.

Of a source that leaves a choice each option is compared with the same one of the emitted program.

A store of a literal that changes nothing (``+= -0.0``), and the part of ``+= where(c, term, -0.0)``
outside `c`, is no instance in either program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from offcut.core.analysis import analysis
from offcut.core.expr import Load, Var
from offcut.core.memo import memo
from offcut.core.plain_loops import strip_synchronization
from offcut.core.program import Alloc, Program, Stmt, Store, Tile, blocks
from offcut.core.program import walk as statements_of
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError
from offcut.polyhedral import (
    PASS,
    REQUEST,
    BudgetExceeded,
    accesses_outside,
    escaping_windows,
    operation_budget,
    request_budget,
    try_isl,
)
from offcut.polyhedral.extract_statements import NotRepresentable, cases
from offcut.polyhedral.program_sets import ProgramSets
from offcut.proof.by_instances.counterexample import compare_sampled_runs, confirm_difference
from offcut.proof.by_instances.dataflow import DataFlow
from offcut.proof.by_instances.declarations import (
    check_conditions,
    check_declarations,
    check_masked_inside,
    check_parts_inside,
    check_program_inside,
    check_source_inside,
)
from offcut.proof.by_instances.initialization import is_written_before_read
from offcut.proof.by_instances.matching import ways
from offcut.proof.by_instances.pairing import (
    UNDECIDED,
    Part,
    ProgramsDiffer,
    Sides,
    undecided_error,
)
from offcut.proof.by_instances.reordering import Order
from offcut.proof.by_structure.places import NotStructural
from offcut.proof.certificate import Theorem
from offcut.proof.normal_forms.copies import forward_copies, without_copies
from offcut.proof.normal_forms.derived_sizes import find_broken_range, write_out_derived_sizes
from offcut.proof.normal_forms.element_loops import (
    ends_at_elements,
    with_distinct_loops,
    with_unit_tiles,
)
from offcut.proof.normal_forms.iterations import Body, bodies
from offcut.proof.normal_forms.narrowing import conditional_sums
from offcut.proof.normal_forms.options import (
    count_combinations,
    options,
    pair_options,
    pair_whole_options,
)
from offcut.proof.normal_forms.parts_in_sequence import changed_part, parts_in_sequence
from offcut.proof.normal_forms.reduction_init import (
    normalize_reductions,
    with_floats,
)
from offcut.proof.normal_forms.storage_order import (
    rename_conflicts,
)
from offcut.proof.shape_equality import (
    is_alike,
    is_hoisted,
    is_read_alone,
    is_same_shape,
    is_separated,
    is_unpadded,
    try_is_alike,
)

_MOST_ALTERNATIVES = 256
# Where options are compared one by one, a proof may do the work of so many before it gives up: what a refusal takes at most.
_MOST_REQUESTS = 4
_MOST_ATTEMPTS = 16
_PIECES = 8
# Pieces with windows of their own that share the work of one request: each is compared by itself.
_PROVED = (
    ("instances", "every emitted instance is one of the source"),
    ("in bounds", "every access lies in its buffer and its window"),
    ("data flow", "every read sees what the source's read sees"),
    ("results", "every result is left by the source's last write"),
)
_AS_FAR = "every access lies in its buffer and its window, but for those that sets do not decide"


def check_equal(
    source: Program,
    emitted: Program,
    *,
    reassociate: bool = False,
    users: Mapping[str, str] | None = None,
    through: Program | None = None,
    inside: bool = False,
    most: int | None = None,
) -> tuple[Theorem, ...]:
    """Prove that `emitted` computes what `source` does, at every size that the source allows.

    reassociate   whether the updates of a sum may run in any order, each once; those of max= and
                  min= always may
    users         the users' names of sizes, by the program's, for messages
    through       a program on the way from one to the other: two small steps are often easier to see
    inside        whether a proof of `source` said already that every access of it lies inside
    most          operations that isl may take; None: those of a request for each combination of options, of a few at most,
                  past which both programs are run at small sizes

    instances   every emitted instance is an instance of the source
    in bounds   every access lies inside its buffer, and inside the window that holds it; where sets do
                not decide it of some (an index read from an array), that is said
    data flow   every read sees the value that the source's read sees
    results     every element of every result is left by the instance that leaves it in the source

    Raises PartitionError with the smallest witness.
    """
    names = tuple((users or {}).items())
    source, emitted, through = map(strip_synchronization, (source, emitted, through or source))
    return _prove_pair(source, emitted, reassociate, names, through, inside, most)


@memo(32)
def _prove_pair(
    source: Program,
    emitted: Program,
    reassociate: bool,
    names: tuple[tuple[str, str], ...],
    through: Program,
    inside: bool,
    most: int | None,
) -> tuple[Theorem, ...]:
    """Prove what `check_equal` asks, once for a pair of programs: with derived sizes written out, else as they stand."""
    as_they_stand = source, emitted, through
    first, second, third = written = tuple(map(write_out_derived_sizes, as_they_stand))
    try:
        return _prove_as_written(first, second, third, reassociate, names, inside, most)
    except PartitionError as refused:
        if written == as_they_stand:
            raise
        try:  # a product with a size that has few values is a set, and one with what it stands for is none
            return _prove_as_written(source, emitted, through, reassociate, names, inside, most)
        except PartitionError:
            raise refused from None


def _prove_as_written(
    source: Program,
    emitted: Program,
    through: Program,
    reassociate: bool,
    names: tuple[tuple[str, str], ...],
    inside: bool,
    most: int | None,
) -> tuple[Theorem, ...]:
    several = min(count_combinations(emitted.body), _MOST_REQUESTS)
    if parts_in_sequence(source, emitted):
        several += 1  # the parts are compared first, with half of a request each
    several += min(_count_outer_windows(emitted.body) // _PIECES, _MOST_REQUESTS - 1)

    def compare_runs(because: str) -> PartitionError:
        return compare_sampled_runs(source, emitted, dict(names), reassociate, because)

    otherwise = compare_runs if most is None else None
    with request_budget(
        *("prove", UNDECIDED),
        at=emitted.name,
        most=most,
        requests=several,
        otherwise=otherwise,
    ):
        theorems = _theorems(source, emitted, reassociate, dict(names), through, inside)
        if inside or all(one.sizes is not None for one in accesses_outside(source)):
            return theorems
    return tuple(replace(t, statement=_AS_FAR) if t.name == "in bounds" else t for t in theorems)


def _theorems(
    source: Program,
    emitted: Program,
    reassociate: bool,
    users: Mapping[str, str],
    through: Program,
    inside: bool,
) -> tuple[Theorem, ...]:
    proved = tuple(Theorem(*one, emitted.name) for one in _PROVED)
    if _is_alike_but_for_common(source, emitted, reassociate, users, inside):
        return proved
    if (options_in_pairs := pair_whole_options(source, emitted)) is not None:
        user_pairs = tuple(users.items())  # an option that was proved alone is proved
        each = (
            _prove_pair(a, b, reassociate, user_pairs, a, inside, None) for a, b in options_in_pairs
        )
        return tuple(theorem for one in each for theorem in one)
    source, emitted = normalize_reductions(source, emitted, reassociate)
    through = with_floats(through)
    check_declarations(source, emitted)
    if _is_narrowed(source, emitted, reassociate, inside):
        return proved
    if (
        is_separated(source, emitted)
        or is_read_alone(source, emitted)
        or is_hoisted(source, emitted)
        or _is_unpacked(source, emitted, reassociate)
        or is_unpadded(source, emitted, reassociate)
    ) and (inside or not accesses_outside(source)):
        return proved
    way = [source]
    if through != source and is_same_shape(source, through):
        way.append(through)
    if any(is_same_shape(step, emitted) for step in reversed(way)):
        return proved
    alike = try_is_alike(source, emitted, reassociate)
    if (
        alike
        or (ends_at_elements(source) and _is_in_unit_tiles(source, emitted))
        or _is_staged(source, emitted, reassociate)  # tiles in windows, of which others take longer
        or (alike is None and is_alike(source, emitted, reassociate))
        or _is_alike_by_iteration(source, emitted, reassociate, inside)
        or _is_alike_in_parts(source, emitted, reassociate, users, inside)
    ):
        return proved
    for one in (source, emitted):
        _check_ranges(one, users)
    if count_combinations(source.body) > 1:
        few = max(count_combinations(one.body) for one in (source, emitted)) <= _MOST_ALTERNATIVES
        pairs = pair_options(source, emitted) if few else None
        if pairs is None:
            raise undecided_error(
                source.name,
                "the source leaves a choice, and the options of the two, their labels and costs, are not alike "
                f"or more than {_MOST_ALTERNATIVES} in combination",
            )
        each = (_theorems(a, b, reassociate, users, a, inside) for a, b in pairs)
        return tuple(theorem for one in each for theorem in one)
    plain = replace(source, body=next(options(source.body))[1])
    if count_combinations(emitted.body) > _MOST_ALTERNATIVES:
        raise undecided_error(
            emitted.name, f"it has more than {_MOST_ALTERNATIVES} combinations of options"
        )
    theorems: list[Theorem] = []
    for label, body in options(emitted.body):
        of = f"{emitted.name}, {label}" if label else emitted.name
        theorems += [replace(one, of=of) for one in proved]
        whole = replace(emitted, body=body)
        if label and any(is_same_shape(step, whole) for step in reversed(way)):
            continue
        if label and is_alike(plain, whole, reassociate):
            continue
        whole = rename_conflicts(whole, plain)
        if conditional_sums(whole) and _is_part(plain, whole, reassociate, users, of):
            continue
        try:
            _by_instances(plain, whole, reassociate, users, of)
        except ProgramsDiffer as differing:
            flows = ProgramSets(source.sizes, source.assumptions, users)
            raise confirm_difference(differing, plain, whole, flows, reassociate, of) from None
        except NotRepresentable as why:
            raise undecided_error(of, f"{why.refused}: {why.because}") from None
    return tuple(theorems)


def _is_in_unit_tiles(source: Program, emitted: Program) -> bool:
    """Return whether `emitted` is `source` with loops split that count a result."""
    forms = dict.fromkeys((source, with_distinct_loops(source)))
    return any(is_same_shape(one, with_unit_tiles(one, emitted)) for one in forms)


def _count_outer_windows(body: Sequence[Stmt]) -> int:
    """Return the number of windows in the text of statements that stand inside of no other."""
    return sum(
        1 if isinstance(stmt, Alloc) else sum(_count_outer_windows(block) for block in blocks(stmt))
        for stmt in body
    )


def _is_alike_in_parts(
    source: Program, emitted: Program, reassociate: bool, users: Mapping[str, str], inside: bool
) -> bool:
    """Return whether two programs are equal part by part; False if half of the budget of a request does not decide a part."""
    pairs = parts_in_sequence(source, emitted)
    try:
        for one, other in pairs:
            with operation_budget(REQUEST // 2):
                _theorems(one, other, reassociate, users, one, inside)
    except (BudgetExceeded, PartitionError):
        return False
    return bool(pairs)


def _is_alike_but_for_common(
    source: Program, emitted: Program, reassociate: bool, users: Mapping[str, str], inside: bool
) -> bool:
    """Return whether what two programs do not both run is equal, and what they do is inside of its arrays; False if they have no statement
    in common, or half of the budget of a pass does not decide it.
    """
    part = changed_part(source, emitted)
    if part is None or (not inside and try_isl(lambda: bool(accesses_outside(source)), True)):
        return False
    try:
        with operation_budget(PASS // 2):
            _theorems(*part, reassociate, users, part[0], inside)
    except (BudgetExceeded, PartitionError):
        return False
    return True


def _by_instances(
    source: Program, emitted: Program, reassociate: bool, users: Mapping[str, str], of: str
) -> None:
    """Compare two programs without choices by their instances.

    Raises PartitionError with the smallest witness, Differs where they seem to differ, NotReadable.
    """
    check_conditions(source, emitted)
    flows = ProgramSets(source.sizes, source.assumptions, users)
    pair = flows.prepare(source), flows.prepare(emitted)
    for case in cases(flows, pair[1]):
        _prove(Sides(case, *pair, reassociate, of))
    check_program_inside(emitted, users)


def _is_part(
    source: Program, emitted: Program, reassociate: bool, users: Mapping[str, str], of: str
) -> bool:
    """Return whether `source` computes what `emitted` does, of whose local arrays it leaves out what nobody reads: then the
    instances of `emitted`, all inside of its arrays, are more than its own.
    """
    if any(isinstance(stmt, Tile) for stmt in statements_of(emitted.body)):
        return False
    try:
        _by_instances(emitted, source, reassociate, users, of)
    except (PartitionError, ProgramsDiffer, NotRepresentable):
        return False
    return not accesses_outside(emitted)


def _check_ranges(program: Program, users: Mapping[str, str]) -> None:
    """Refuse a bounded value over sizes alone that is seen to leave its range."""
    witness = find_broken_range(program)
    if witness is not None:
        let, sizes = witness
        at = ", ".join(f"{users.get(name, name)} = {value}" for name, value in sizes.items())
        raise PartitionError(
            "prove",
            f"the value of {let.name} is not in {let.lo}:{let.hi}",
            because=f"{f'with {at}, ' if at else ''}{format_expr(let.value)} leaves it",
        )


def _is_alike_by_iteration(
    source: Program,
    emitted: Program,
    reassociate: bool,
    inside: bool = False,
    opens: bool = True,
) -> bool:
    """Return whether two programs have loops of one text, around bodies that are equal in any iteration.

    inside  whether every access of `source` is known to lie inside
    opens   whether ranges may begin anywhere in the first question; not where it is about where they begin

    Raises PartitionError for a bounded value of the source that leaves its range.
    """
    own = [buffer.name for buffer in source.buffers]
    copied = try_isl(lambda: forward_copies(emitted, own), emitted)
    if copied != emitted and is_same_shape(source, copied) and _reads_as_inside(emitted, copied):
        return inside or all(one.sizes is None for one in accesses_outside(source))
    for one in dict.fromkeys((emitted, copied)):
        for whole in (False, True):
            pairs = bodies(source, one, whole)
            if pairs is None:
                continue
            if all(_is_equal(pair, reassociate, opens) for pair in dict.fromkeys(pairs)):
                outside = () if inside else accesses_outside(source)
                return all(one.sizes is None for one in outside)
    return False


def _reads_as_inside(emitted: Program, copied: Program) -> bool:
    """Return whether the reads of copies in `emitted` that `copied` forwards are inside of the copies if those of the originals are.

    isl shows that a read is inside, or the copy is the original in another order of its axes.
    """
    copies = frozenset(b.name for b in emitted.buffers) - {b.name for b in copied.buffers}
    read = accesses_outside(emitted, copies)
    return all(one.sizes is None and _is_reordered(emitted, one.buffer) for one in read)


def _is_reordered(program: Program, name: str) -> bool:
    """Return whether an array holds the elements of another one, each at its place, the axes in another order."""
    shape = program.buffer(name).shape
    for store in (one for one in analysis(program).of(Store) if one.buffer == name):
        if not (isinstance(store.value, Load) and set(store.index) == set(store.value.index)):
            return False
        if not all(isinstance(part, Var) for part in store.index):
            return False
        extents = dict(zip(store.index, shape, strict=True))
        array = program.buffer(store.value.buffer).shape
        if [extents[part] for part in store.value.index] != [*array] or len(extents) < len(array):
            return False
    return True


def _is_staged(source: Program, emitted: Program, reassociate: bool) -> bool:
    """Return whether `emitted` is a cut of `source` with its tiles in windows."""
    if not analysis(emitted).has(Alloc) or analysis(source).has(Alloc):
        return False
    return any(
        (is_same_shape(source, cut) or is_alike(source, cut, reassociate))
        and _is_alike_by_iteration(cut, emitted, reassociate)
        for cut in without_copies(emitted, source)
    )


def _is_equal(pair: Body, reassociate: bool, opens: bool) -> bool:
    """Return whether the two blocks of a pair compute the same, and the second one stays in its windows."""
    questions = (pair.with_any_bounds(), pair) if opens else (pair,)
    return any(try_isl(partial(_holds, one, reassociate), False) for one in questions)


def _holds(pair: Body, reassociate: bool) -> bool:
    try:
        _check_body(pair, reassociate)
    except (ProgramsDiffer, NotRepresentable, NotStructural, PartitionError):
        return False
    return True


@memo(256)
def _check_body(pair: Body, reassociate: bool) -> None:
    """Prove what must hold of a pair.

    Raises NotStructural, Differs, NotReadable or PartitionError where it is not shown.
    """
    if escaping_windows(pair.windowed):
        raise NotStructural("an access outside of a window around")
    if not is_written_before_read(pair.source, pair.hidden):
        raise NotStructural("an array whose contents go from one iteration to the next")
    source, emitted = pair.source, pair.emitted
    if is_same_shape(source, emitted) or is_alike(source, emitted, reassociate):
        return
    if max(count_combinations(one.body) for one in (source, emitted)) > 1:
        raise NotStructural("a choice in an iteration")
    _by_instances(source, emitted, reassociate, {}, emitted.name)


def _is_unpacked(source: Program, emitted: Program, reassociate: bool) -> bool:
    """Return whether `emitted` is `source` but for what reads a packed copy, or what this is of."""
    if not any(buffer.layout is not None for buffer in source.buffers):
        return False
    one, other = (try_isl(partial(forward_copies, each), each) for each in (source, emitted))
    forwarded = one is not source and other is not emitted
    return forwarded and _is_alike_by_iteration(one, other, reassociate, inside=True, opens=False)


def _is_narrowed(source: Program, emitted: Program, reassociate: bool, inside: bool) -> bool:
    """Return whether `emitted` is `source` with its loops over conditional terms narrowed: its tiles are alike, so they are compared first."""
    if not conditional_sums(source) or conditional_sums(emitted):
        return False
    return _is_alike_by_iteration(source, emitted, reassociate, inside, opens=False)


def _prove(both: Sides) -> None:
    """The cheaper argument where it applies, else the general one."""
    check_source_inside(both)
    failure: PartitionError | ProgramsDiffer | None = None
    for parts in islice(ways(both), _MOST_ATTEMPTS):
        try:
            _check(both, parts)
        except (PartitionError, ProgramsDiffer) as error:
            failure = failure or error
            continue
        return
    assert failure is not None
    raise failure


def _check(both: Sides, parts: Sequence[Part]) -> None:
    if not Order(both, parts).holds():
        check_parts_inside(both, parts)
        DataFlow(both, parts).check()
    check_masked_inside(both, parts)
