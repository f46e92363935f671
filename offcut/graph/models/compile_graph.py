"""From a graph to a model: passes, then a kernel for each region, from the cache where they were made before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.core.process import freeze_gc
from offcut.errors import DescribeError, trim_traceback
from offcut.graph.graph import Bound, Graph
from offcut.graph.models.batches.microbatches import Parts, check_parts
from offcut.graph.models.compiling import plan_cache
from offcut.graph.models.compiling.kernels import Kernels, steps_of_bound
from offcut.graph.models.compiling.split import Targets, as_targets, resolve_targets, texts_of
from offcut.graph.models.model import Model
from offcut.graph.passes import DEFAULT, Pass, run_passes
from offcut.graph.passes.products import insert_output_copies


@freeze_gc()
@trim_traceback
def compile_graph(
    bound: Bound,
    threads: int | None = None,
    target: Targets = "cpu",
    passes: Sequence[Pass] = DEFAULT,
    least_filled: float = 0.0,
    distributive: bool = True,
    orders: Mapping[str, tuple[int, ...]] | None = None,
    parts: Parts = True,
) -> Model:
    """A model of a graph.

    threads  that a kernel may use; None: as `offcut.compile` says
    target   a target, or several: a kernel runs on the first that takes it, and the model's plan says which, and why
             those before it do not
    passes   what is done to the graph first, in order
    least_filled  of several targets, one takes a product where at least this share of what its microkernels compute is
                  asked for, and not there to fill tiles up: 0 to 1
    distributive  whether products may be distributed over sums: constants around a sum go into its weights, and sums over windows
                  take fewer multiplications, which is equal in exact arithmetic and rounds otherwise
    orders  of the axes of outputs in memory, by name, outermost first: what is stored otherwise for what reads it, is a view, or is
            computed by a loop program, is copied where it does not lie so
    parts   which kernels run for a part of the batch at a time: those that the machine's memories say, or none; those that a text says,
            in the lines by which `Model.plan` shows them; or a rule that gives such a text for sizes. The bits are the same

    A region of several nodes that no kernel can be made of becomes a kernel for each node; the model's plan says so.

    Raises DescribeError, PartitionError or TargetError for a node that no kernel can be made of; ParseError or PartitionError for
    `parts` that are not of that form, or in which an element would know of another part.
    """
    if not isinstance(bound, Bound):
        raise DescribeError(
            "graph",
            f"cannot compile {type(bound).__name__}",
            because="it is not a graph with its constants",
            help=("Builder().bound", "Bound(parse_graph(text), arrays)"),
        )
    targets = as_targets(target)
    if not isinstance(distributive, bool):
        raise DescribeError("graph", f"cannot take {distributive=}", because="it is True or False")
    check_parts("graph", parts)
    if not (isinstance(least_filled, int | float) and 0 <= least_filled <= 1):
        raise DescribeError(
            "graph", f"cannot take {least_filled=}", because="it is a share, from 0 to 1"
        )
    _check_orders(bound.graph, orders or {})
    improved_bound = insert_output_copies(run_passes(bound, passes), orders or {})
    graph = improved_bound.graph
    kernels = Kernels(
        graph.sizes,
        graph.values,
        improved_bound.arrays,
        targets,
        threads,
        least_filled=least_filled,
        distributive=distributive,
    )
    how = {
        "threads": threads,
        "target": targets,
        "passes": tuple(passes),
        "least_filled": least_filled,
        "distributive": distributive,
        "orders": orders,
        "parts": parts,
    }
    run_by = resolve_targets(targets)
    name = plan_cache.name_of(
        improved_bound, (texts_of(run_by, threads), least_filled, distributive, orders)
    )
    steps = plan_cache.read(name, improved_bound.arrays, run_by)
    if steps is None:
        steps = steps_of_bound(improved_bound, kernels, orders=orders)
        plan_cache.write(name, steps, kernels.codes, run_by)
    return Model(improved_bound, steps, bound, how)


def _check_orders(graph: Graph, orders: Mapping[str, tuple[int, ...]]) -> None:
    for name, order in orders.items():
        rank = len(graph.values[name].shape) if name in graph.outputs else None
        if rank is None or sorted(order) != [*range(rank)]:
            outputs = ", ".join(graph.outputs)
            raise DescribeError(
                "graph",
                f"cannot store {name} in the order {order}",
                because=f"the outputs are {outputs}"
                if rank is None
                else f"it has {rank} axes, and an order names each of them once",
                help=() if rank is None else (f"orders={{{name!r}: {tuple(range(rank))}}}",),
            )
