"""`oc.tune`: a computation and a distribution of sizes in, the schedule that is measured to be the best out."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from math import isfinite
from typing import Any

from offcut.backends.compile_request import check_reassociate
from offcut.backends.decide import proved_plan
from offcut.backends.options import check_result
from offcut.backends.target import Target
from offcut.core.integers import whole
from offcut.core.program import Program
from offcut.costmodel.learned import Feature
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError, trim_traceback
from offcut.pipeline import target as target_named
from offcut.schedule import Schedule
from offcut.search import ExpectedCost, Records
from offcut.search.explorers import get_explorer
from offcut.search.pool import LOCAL, Pool, pool_of
from offcut.tuning.campaign import BATCH, Campaign, Progress
from offcut.tuning.learning.online_model import get_cost, has_nests
from offcut.tuning.measuring.candidate import measuring
from offcut.tuning.pooled_bench import ROUND, open_pooled_bench
from offcut.tuning.problem import DEFAULT, Limits, make_problem
from offcut.tuning.progress import show_progress
from offcut.tuning.schedule_prices import UserPriceFunction

TRIALS = 64
"""Where neither trials nor seconds are asked for: eight rounds."""
LOOKS = 32
"""Schedules that are priced in a round where loops have to be cut, or streams to be counted, for it: at a tenth of a second
each, pricing a round takes about as long as timing it.
"""


@trim_traceback
def tune(
    output: Tensor | Sequence[Tensor] | Program,
    inputs: Sequence[Tensor] | None = None,
    constants: Sequence[str] | Mapping[str, Any] = (),
    sizes: Mapping[str, Any] | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    explorer: Any = "anneal",
    seed: int = 0,
    records: str | os.PathLike[str] | Records | None = None,
    target: str | Target = "cpu",
    price: str | os.PathLike[str] | UserPriceFunction | None = None,
    features: Sequence[Feature] = (),
    threads: int | None = None,
    reassociate: bool = True,
    microkernels: Sequence[Microkernel] = (),
    alternatives: int = 3,
    limits: Limits = DEFAULT,
    pool: str | Pool | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
) -> Schedule:
    """Return the schedule of `output` that is the fastest for calls whose sizes are distributed as `sizes` says.

    ``oc.compile(output, …, schedule=tuned)`` makes the kernel, with the same inputs, constants, threads and
    microkernels. Trial 0 is the target's default; it is what comes back where nothing beats it by more than the
    noise of a last run in turns. Begun again, tuning takes from `records` what they know.

    constants     names of inputs that are known before any call, or arrays by name
    sizes         by name: a list, a ``range``, both ends ``(low, high)``, or weights by value; with several names
                  every combination
    trials        at most; None: 64, or as many as `seconds` allow
    seconds       after which no trial is proposed; predicting what to try takes at most half of those that are left before
                  a round; the last run comes on top
    explorer      anneal, beam, evolution, exhaustive, gradient, random, tree, an entry point of the group
                  ``offcut.explorers``; or a function ``(space, seen, rng, count) -> schedules``
    seed          of what is drawn: explorers and arrays
    records       where measurements are kept; None: the default file
    price         what search goes by: ``"closed"``, the target's model; ``"learned"``, that model corrected by what was
                  learned before (the default file, where it is) and by the trials of each round; the path of such a
                  model; an entry point of the group ``offcut.prices``; or ``price(schedule, **sizes)`` -> seconds.
                  None: learned where XGBoost is installed, else closed
    features      of yours, that a correction is learned from, too: functions of a `Case`
    alternatives  ways of a nest that may compete at run time, at most
    limits        of each candidate
    pool          the address of a dask scheduler, ``tls://host:port``, whose workers measure, or a `Pool`; None: this process
                  measures; ``local``: so it does, in the rounds of a pool
    progress      told of each trial; or whether it is shown on standard error: a bar on a terminal, elsewhere a line
                  every ten seconds; None: it is

    Raises DescribeError for an argument that means nothing, TargetError where nothing can be measured, BusyError
    where the machine does too much else for that.
    """
    started = time.monotonic()
    _check(trials, seconds, seed, alternatives)
    _check_kinds(constants, features, limits, records, progress)
    check_reassociate(reassociate, "tune")
    workers = None if pool is None else pool_of(pool, "tune")
    explorer_name, proposing = get_explorer(explorer)
    own_target = target if isinstance(target, Target) else target_named(target)
    requested = own_target.options(
        "tune", reassociate=reassociate, microkernels=microkernels, threads=threads
    )
    options = check_result(own_target, "options", requested)
    rng_seed = operator.index(seed)
    problem = make_problem("tune", output, inputs, constants, sizes, own_target, options, rng_seed)
    default = proved_plan(own_target, problem.request, options)
    space = own_target.space(default, problem.request, options, alternatives)
    predicted = get_cost(problem, space.computation, space.first, price, features)
    is_quick = has_nests(space.first) and not own_target.is_simulator
    looks = None if is_quick else LOOKS
    expected = ExpectedCost(predicted, problem.weights, limits.hopeless, looks)
    store = records if isinstance(records, Records) else Records(records)
    most = TRIALS if trials is None and seconds is None else trials
    with ExitStack() as stack:
        tell = stack.enter_context(show_progress(progress, space.first.name, most))
        campaign = partial(
            Campaign,
            problem,
            space.going_by(expected),
            expected,
            proposing,
            explorer_name,
            store,
            resolution=0.0 if own_target.is_simulator else limits.resolution,
            started=started,
        )
        if workers is None or workers.address == LOCAL:
            here = measuring(problem, limits, stack)
            batch = BATCH if workers is None else ROUND
            return campaign(here.each, most, seconds, tell, last=here.turns, batch=batch).best()
        devices = stack.enter_context(open_pooled_bench(problem, limits, workers))
        turns = partial(devices.dispatch, whole=True)
        return campaign(devices.dispatch, most, seconds, tell, last=turns, batch=ROUND).best()


def _check(trials: object, seconds: object, seed: object, alternatives: object) -> None:
    for name, value in (("trials", trials), ("alternatives", alternatives)):
        if value is not None and (whole(value) or 0) < 1:
            raise _refused(name, value, "an int, at least 1")
    number = whole(seed)
    if number is None or abs(number) >= 2**63:
        raise _refused("seed", seed, "an int of 64 bits")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and isfinite(seconds) and seconds > 0):  # type: ignore[arg-type,operator]
        raise _refused("seconds", seconds, "a number above 0")


def _check_kinds(
    constants: object, features: object, limits: object, records: object, progress: object
) -> None:
    is_sequence = isinstance(constants, Sequence) and not isinstance(constants, str)
    if not (is_sequence or isinstance(constants, Mapping)):
        raise _refused("constants", constants, "names of inputs, or arrays by name")
    if not (isinstance(features, Sequence) and all(map(callable, features))):
        raise _refused("features", features, "functions of a Case, one after the other")
    if not isinstance(limits, Limits):
        raise _refused("limits", limits, "Limits(…)")
    if not (records is None or isinstance(records, str | os.PathLike | Records)):
        raise _refused("records", records, "the path of a file, or Records(path)")
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise _refused("progress", progress, "a function that is told of each trial, True or False")


def _refused(name: str, value: object, expected: str) -> DescribeError:
    return DescribeError("tune", f"cannot take {name}={value!r}", because=f"{name} is {expected}")
