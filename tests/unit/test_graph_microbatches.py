"""Micro-batches: what runs for a part of the batch at a time computes the same bits, lies in memory of one part, and pays."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection
from hypothesis import given, settings
from hypothesis import strategies as st

import offcut as oc
from offcut import Tensor
from offcut.core import index as ix
from offcut.errors import InternalError
from offcut.graph.fusion.batch_axes import Coupling, parallel_axes
from offcut.graph.models.batches.arena_plan import pack_slots
from offcut.graph.models.batches.microbatches import MicroBatches, Part, Parts, parse_parts
from offcut.graph.models.compiling.batch_strides import couplings
from offcut.graph.sizes.extents import product
from offcut.ir import Expr
from tests.facade import Block, Bound, Builder, Model, compile_graph, load_machine
from tests.graphs import arrays, drawn
from tests.machines import host_with_memories_of


def runs_of(model: Model, size: str, seed: int) -> Iterator[tuple[int, int]]:
    """Steps that may run for a part of the size: the longest runs of them, and one within each."""
    generator = np.random.default_rng(seed)
    parallel = [not why for why in couplings(model.steps, size, model._lengths)]
    at = 0
    while at < len(parallel):
        end = at
        while end < len(parallel) and parallel[end]:
            end += 1
        if end > at:
            yield at, end
            first = int(generator.integers(at, end))
            yield first, int(generator.integers(first, end)) + 1
        at = max(end, at + 1)


def batches_of(model: Model, asked: Parts = True) -> MicroBatches:
    graph = model.bound.graph
    return MicroBatches(
        model._shared.calls.operands, graph.values, model._lengths, graph.sizes, asked
    )


def text_of(model: Model, size: str, runs: list[tuple[tuple[int, int], int]]) -> str:
    """The parts of steps from the first to before the last of each, for so many at a time."""
    names = [step.name for step in model.steps]
    return "\n".join(
        str(Part(names[first], names[end - 1], count, size)) for (first, end), count in runs
    )


def in_parts(model: Model, size: str, runs: list[tuple[tuple[int, int], int]]) -> None:
    """From now on a model runs so, in memory that holds NaN at first."""
    batches = batches_of(model, text_of(model, size, runs))
    model._shared = model._shared._replace(batches=batches)
    take = model._blocks.take

    def poisoned(count: int) -> Block:
        block = take(count)
        block.owner.fill(0xFF)  # type: ignore[attr-defined]
        return block

    model._blocks.take = poisoned  # type: ignore[method-assign]
    for call in model._calls.values():
        model._known.remove(call)
    model._calls.clear()


@pytest.mark.every(4)
@pytest.mark.parametrize("seed", range(300, 304))
def test_a_drawn_graph_in_parts_of_either_size_gives_the_same_bits(seed: int) -> None:
    bound = drawn(seed, 9)
    for size, sizes in (("b", {"b": 4, "n": 3}), ("n", {"b": 2, "n": 5})):
        model = compile_graph(bound, threads=1)
        given = arrays(bound, seed, **sizes)
        expected = model(given)
        runs = [*runs_of(model, size, seed)]
        alone = [[(run, count)] for run in runs for count in range(1, sizes[size])]
        together = [(run, 1 + n % (sizes[size] - 1)) for n, run in enumerate(runs[::2])]
        for asked in (*alone, together):
            in_parts(model, size, asked)
            found = model(given)
            for name in expected:
                assert np.array_equal(found[name], expected[name], equal_nan=True), asked


def residual(images: int = 512, least: int = 1, multiple: int = 1) -> Bound:
    """Convolutions of images of any extent, a sum with what came before them, and outputs of several depths."""
    made = Builder("residual")
    b, h, w = made.size("b", least, images, multiple), made.size("h", 1, 64), made.size("w", 1, 64)
    generator = np.random.default_rng(1)

    def convolved(x: Any, out: int, channels: int, kernel: int, **how: Any) -> Any:
        held = generator.uniform(-0.3, 0.3, (out, channels, kernel, kernel)).astype("float32")
        return made.node("conv2d", x, made.constant(made.fresh("w"), held), **how)

    x = made.input("x", "float32", (b, 3, h, w))
    first = made.node("relu", convolved(x, 16, 3, 3, padding=1))
    wide = made.node("relu", convolved(first, 48, 16, 1))
    deep = made.node("relu", convolved(wide, 48, 1, 3, padding=1, groups=48))
    joined = made.node("add", convolved(deep, 16, 48, 1), first)
    last = made.node("relu", convolved(joined, 8, 16, 1))
    made.output(wide, made.node("mean", last, axis=[2, 3]))
    return made.bound


@cache
def images_model(images: int = 512, least: int = 1, multiple: int = 1, threads: int = 1) -> Model:
    """Of `residual`; each test says which parts it runs in."""
    return compile_graph(residual(images, least, multiple), threads=threads)


def test_what_lies_between_kernels_takes_memory_of_one_part() -> None:
    model = images_model()
    sizes = {"b": 8, "h": 32, "w": 32}
    in_parts(model, "b", [((0, len(model.steps)), 1)])
    parted = model.plan(**sizes)
    assert parted.parts == (Part(model.steps[0].name, model.steps[-1].name, 1, "b"),)
    whole = running(model, parts=False).plan(**sizes)
    assert sum(bytes_of(parted.arena)) * 7 < sum(bytes_of(whole.arena))
    assert str(parted).splitlines()[-1] == str(parted.parts[0])


@pytest.mark.slow
def test_a_cost_counts_what_runs_for_each_part() -> None:
    model = images_model()
    sizes = {"b": 5, "h": 8, "w": 8}
    whole = running(model, parts=False).cost(**sizes)
    in_parts(model, "b", [((1, 3), 2)])
    parted = model.cost(**sizes)
    assert parted.flop == whole.flop
    assert [one.times for one in parted.kernels][:5] == [1, 2, 1, 2, 1]
    assert parted.seconds > whole.seconds * 0.9
    assert "2 × " in str(parted)


def test_parts_keep_what_passes_between_kernels_out_of_main_memory() -> None:
    model = images_model()
    sizes = {"b": 64, "h": 64, "w": 64}
    assert chosen(model, "zen4", **sizes)
    parted = passing(model, **sizes)
    whole = passing(running(model, "zen4", parts=False), **sizes)
    assert whole > 0
    assert parted < 0.2 * whole


def test_a_cost_sees_weights_that_all_kernels_together_drive_out_of_the_caches() -> None:
    made = Builder("deep")
    x = made.input("x", "float32", (made.size("b", 1, 64), 1024))
    for _ in range(6):
        held = np.ones((1024, 1024), "float32")
        x = made.node("relu", made.node("dense", x, made.constant(made.fresh("w"), held)))
    made.output(x)
    target = host_with_memories_of("zen4")
    cost = compile_graph(made.bound, 1, target).cost(b=1)
    assert {one.bound_by for one in cost.kernels} == {"weights"}
    dram = 4 * 1024 * 1024 / target.machine.dram.bytes_per_cycle / cost.kernels[0].each.hertz
    assert all(0.7 * dram < one.seconds < dram for one in cost.kernels)


def bytes_of(arena: tuple[str, ...]) -> list[int]:
    return [int(text.split()[0].replace(",", "")) for text in arena]


def passing(model: Model, **sizes: int) -> float:
    """Cycles in which values pass between kernels by main memory."""
    shared = model._shared
    number = shared.valued(sizes)
    found = shared.batches.cycles(number, shared.runs(number, sizes)[0])
    assert found is not None
    return float(found[1].sum())


def running(model: Model, machine: Any = None, parts: Parts = True) -> Model:
    """The model as it would run on a machine with such memories."""
    batches = batches_of(model, parts)
    if machine is not None:
        batches.machine = load_machine(machine) if isinstance(machine, str) else machine
    model._shared = model._shared._replace(batches=batches)
    return model


def chosen(model: Model, machine: Any, **sizes: int) -> tuple[Part, ...]:
    """What parts a model would run in on a machine."""
    return running(model, machine).plan(**sizes).parts


def test_images_that_no_cache_holds_run_a_few_at_a_time_and_others_at_once() -> None:
    model, zen = images_model(), load_machine("zen4")
    (part,) = chosen(model, zen, b=64, h=64, w=64)
    assert part.count in (1, 2)
    assert chosen(model, zen, b=1, h=64, w=64) == ()
    assert chosen(model, zen, b=8, h=4, w=4) == ()
    memory = tuple(replace(level, bytes=1 << 40) for level in zen.memory)
    assert chosen(model, replace(zen, memory=memory), b=64, h=64, w=64) == ()


@pytest.mark.every(2)
@pytest.mark.parametrize(("least", "multiple", "total"), [(2, 1, 16), (1, 4, 16)])
def test_a_part_is_of_a_size_that_the_batch_may_have(least: int, multiple: int, total: int) -> None:
    model = images_model(least=least, multiple=multiple)
    (part,) = chosen(model, "zen4", b=total, h=64, w=64)
    assert part.count % multiple == 0
    assert part.count >= least
    assert total % part.count in (0, *range(least, part.count))


def test_weights_that_each_part_would_read_again_keep_the_batch_whole() -> None:
    made = Builder("deep")
    b = made.size("b", 1, 64)
    x = made.input("x", "float32", (b, 4, 2048))
    for _ in range(2):
        held = np.ones((2048, 2048), "float32")
        x = made.node("relu", made.node("dense", x, made.constant(made.fresh("w"), held)))
    made.output(x)
    assert chosen(compile_graph(made.bound, threads=1), "zen4", b=64) == ()


def test_threads_that_share_a_kernel_get_an_image_each() -> None:
    model = images_model(threads=2)
    (part,) = chosen(model, "zen4", b=64, h=64, w=64)
    assert part.count == 2


n, m = oc.dim("n", max=64), oc.dim("m", max=64)
X, Y = oc.placeholder((n, m), name="X"), oc.placeholder((n, 8), name="Y")
V, k = oc.placeholder((8,), name="V"), oc.reduce_axis(m, "k")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (oc.compute((n, m), lambda i, j: X[i, j] * 2, name="Z"), {"n", "m"}),
        (oc.compute((n, m), lambda i, j: X[i, j] * V[j % 8], name="Z"), {"n"}),
        (oc.compute((n, m), lambda i, j: X[i, j] + Y[i, 3], name="Z"), {"n", "m"}),
        (oc.compute((n, 8), lambda i, j: oc.sum(X[i, k] * Y[i, j], k), name="Z"), {"n"}),
        (oc.compute((n, m), lambda i, j: X[n - 1 - i, j], name="Z"), {"m"}),
        (oc.compute((n, m), lambda i, j: oc.where(i < 3, X[i, j], 0.0), name="Z"), {"m"}),
        (oc.compute((n, m), lambda i, j: X[i, j] * oc.cast(n, "float32"), name="Z"), {"m"}),
        (oc.compute((n, n), lambda i, j: Y[i, 0] * Y[j, 0], name="Z"), set()),
        (oc.compute((2 * n,), lambda i: Y[i // 2, 0], name="Z"), set()),
    ],
)
def test_a_size_is_parallel_where_places_do_not_know_of_each_other(
    made: Tensor, expected: set[str]
) -> None:
    assert made.definition is not None
    found = parallel_axes([*made.definition.reads, made])
    assert {size for size, axes in found.items() if not isinstance(axes, Coupling)} == expected


LIFE = st.tuples(st.integers(0, 11), st.integers(0, 5), st.integers(0, 499))


@settings(max_examples=30)
@given(st.lists(LIFE, min_size=2, max_size=15))
def test_no_value_lies_over_another_that_is_there_at_once(
    drawn: list[tuple[int, int, int]],
) -> None:
    lives = {f"v{k}": (first, first + more) for k, (first, more, _) in enumerate(sorted(drawn))}
    needs = {f"v{k}": size for k, (*_, size) in enumerate(sorted(drawn))}
    starts, end = pack_slots(needs, lives)
    ends = {name: start + needs[name] for name, start in starts.items()}
    assert all(start % 64 == 0 for start in starts.values())
    assert max(ends.values()) <= end
    for one, other in combinations(lives, 2):
        (first, last), (begin, over) = lives[one], lives[other]
        if first <= over and begin <= last:
            assert ends[one] <= starts[other] or ends[other] <= starts[one], (one, other)


def coupled() -> Bound:
    """A layer for each row, and what is known of all rows: a sum, and a softmax of the batch."""
    made = Builder("coupled")
    b = made.size("b", 2, 64)
    x = made.input("x", "float32", (b, 8))
    y = made.node("relu", made.node("dense", x, made.constant("w", np.ones((8, 8), "float32"))))
    made.output(
        made.node("sum", y, axis=[0], results=("total",)),
        made.node("softmax", y, axis=0, results=("shares",)),
        made.node("softmax", y, axis=1, results=("rows",)),
    )
    return made.bound


def test_the_parts_of_a_plan_are_a_text_that_is_read_back_and_applied() -> None:
    model = images_model()
    sizes = {"b": 64, "h": 64, "w": 64}
    parts = chosen(model, "zen4", **sizes)
    text = "\n".join(map(str, parts))
    assert parse_parts(f"# chosen\n\n{text}  # so") == parts
    again = compile_graph(residual(), threads=1, parts=text)
    assert again.plan(**sizes).parts == parts
    assert again.plan(**{**sizes, "b": parts[0].count}).parts == ()  # the whole batch


def test_a_rule_says_parts_for_each_size_and_the_same_kernels_run_in_other_parts() -> None:
    rows = Part("rows", "rows", 3, "b")
    model = compile_graph(coupled(), threads=1)
    by_rule = model.in_parts(lambda sizes: str(rows) if sizes["b"] > 8 else "")
    asked = compile_graph(coupled(), threads=1, parts=str(rows))
    assert [one.plan(b=8).parts for one in (model, by_rule, asked)] == [(), (), (rows,)]
    assert [one.plan(b=12).parts for one in (model, by_rule, asked)] == [(), (rows,), (rows,)]
    pairs = zip(model.steps, by_rule.steps, strict=True)
    assert all(a.kernel is b.kernel for a, b in pairs)
    x = np.random.default_rng(0).uniform(-1, 1, (12, 8)).astype("float32")
    whole = compile_graph(coupled(), threads=1, parts=False)(x)
    for one in (model, by_rule, asked):
        for found, expected in zip(one(x), whole, strict=True):
            assert np.array_equal(found, expected)


def test_a_plan_says_which_parts_kernels_refuse() -> None:
    plan = compile_graph(coupled(), threads=1, parts="rows to rows: 6 of b at a time").plan(b=13)
    assert plan.parts == ()
    (note,) = plan.notes
    assert note == (
        "rows to rows: 6 of b at a time: not so, since rows: an extent is 1, and its kernel takes 2…64"
    )
    assert str(plan).endswith(note)


def test_a_rule_that_gives_no_parts_is_refused_with_the_sizes() -> None:
    x = np.ones((4, 8), np.float32)
    for rule, because in (
        (lambda sizes: sizes["batch"], "it raised KeyError: 'batch'"),
        (lambda sizes: None, "it gave None, and parts are text"),
    ):
        with rejection(f"""\
PartitionError: parts: cannot ask the rule
  at       b = 4
  because  {because}
  help     a function of {{'b'}}
  help     "relu_1 to mean: 2 of b at a time", or \"\""""):
            compile_graph(coupled(), threads=1, parts=rule)(x)


def test_what_is_no_parts_is_refused() -> None:
    with rejection("""\
DescribeError: graph: cannot take parts=3
  because  it is True, False, a text of parts, or a function from sizes to one
  help     parts="relu_1 to mean: 2 of b at a time"
  help     parts=lambda sizes: "relu_1 to mean: 2 of b at a time" if sizes['b'] > 8 else \"\""""):
        compile_graph(coupled(), threads=1, parts=3)  # type: ignore[arg-type]


COUPLED = refusals(
    r"""
given "relu to total: 2 of b at a time"
parts: cannot run relu to total: 2 of b at a time
  at       total
  because  along b, total reads relu at r0, which is not its own place
  help     relu to relu: 2 of b at a time

given "rows to relu: 2 of b at a time"
parts: cannot run rows to relu: 2 of b at a time
  because  relu is computed before rows
  help     relu to rows: 2 of b at a time

given "relu to y: 2 of b at a time"
parts: cannot run relu to y: 2 of b at a time
  at       y
  because  no kernel gives it
  help     kernels give relu, total, shares, rows

given "relu to relu: 2 of n at a time"
parts: cannot run relu to relu: 2 of n at a time
  at       n
  because  the graph has no such size
  help     b

given "relu to relu: 1 of b at a time"
parts: cannot run relu to relu: 1 of b at a time
  because  b is 2 at least
  help     relu to relu: 2 of b at a time

given "total to total: 2 of b at a time"
parts: cannot run total to total: 2 of b at a time
  at       total
  because  along b, total reads relu at r0, which is not its own place
  help     no part of b: it runs for the whole of it

given "relu to relu: 2 of b at a time\nrelu to relu: 4 of b at a time"
parts: cannot run relu to relu: 4 of b at a time
  at       relu
  because  it runs in another part: relu to relu: 2 of b at a time
  help     leave one of the two out

given "relu to relu: 0 of b at a time"
parse: cannot read parts
  at       line 1: relu to relu: 0 of b at a time
  because  a part is of one at least
  help     relu_1 to mean: 2 of b at a time
""",
    {},
)


@pytest.mark.parametrize("what", COUPLED)
def test_parts_that_may_not_run_are_refused_by_what_couples_them(what: str) -> None:
    text, expected = COUPLED[what]
    with pytest.raises(oc.errors.OffcutError) as refused:
        compile_graph(coupled(), threads=1, parts=text)
    assert str(refused.value) == expected


def test_a_part_that_would_read_beyond_its_memory_is_no_part() -> None:
    made = Builder("rows")
    x = made.input("x", "float32", (made.size("b", 1, 64), 6))
    made.output(made.node("softmax", x))
    model = compile_graph(made.bound, threads=1, parts=False)
    (step,) = model.steps
    read, written = step.batch_strides["b"]
    assert isinstance(read, Expr)
    (name,) = made.outputs
    for strides, wrong in (
        ((product((read, ix.const(2))), written), True),
        ((read, written), False),
    ):
        steps = [replace(step, batch_strides={"b": strides})]
        how = {**model._how, "parts": f"{name} to {name}: 6 of b at a time"}
        made_so = Model(model.bound, model._found._replace(steps=steps), model.asked, how)
        for b in (13, 12):
            with (
                pytest.raises(InternalError, match="is not what its kernel takes")
                if wrong
                else nullcontext()
            ):
                made_so(np.zeros((b, 6), "f"))
