"""The arguments of `oc.compile` that a contender's table says: its target with another description, a tuned schedule, loads that are not hidden."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import offcut as oc
from offcut.backends.compile_request import make_request, zero_constants
from offcut.backends.decide import proved_plan
from offcut.costmodel import Device, of_plain, plain
from offcut.errors import OffcutError, TargetError
from offcut.schedule import At
from offcut.search.explorers import get_explorer
from offcut.studies.environment import digest
from offcut.studies.errors import (
    Place,
    check_keys,
    flag_of,
    refusal,
    seconds_of,
    table_of,
    text_of,
    texts_of,
    whole_of,
)
from offcut.studies.offcut_operators import Described
from offcut.studies.tasks import Operator
from offcut.studies.user_objects import check_callable, digest_of_file, load_named
from offcut.tuning.problem import Limits

TARGET_KEYS = ("target", "machine", "device", "machine_fields")
"""Of a contender's table, what describes its target; each one needs those before it."""
KEYS = (*TARGET_KEYS, "replan", "reassociate", "hiding", "tune", "draw")
"""What this file reads of a contender's table."""

PRICES = ("closed", "learned")
"""Names of offcut's own prices of `oc.tune`; another one is a model (``.json``), a function of the user's, or an entry point."""

TUNE = ("explorer", "trials", "seed", "price", "features", "budget")


def check_options(
    table: Mapping[str, Any], identity: dict[str, Any], at: Place, folder: Path
) -> dict[str, Any]:
    """Return the arguments of `oc.compile` that do not depend on the operator; add the digests of files to `identity`.

    Raises DescribeError for what means nothing.
    """
    for name in ("target", "machine", "device"):
        text_of(table, name, at)
    file = folder / str(table.get("machine", ""))
    if "machine" in table and file.is_file():
        identity["machine_digest"] = digest_of_file(file)
    example = "machine_fields = {dram = {bytes_per_cycle = 16.0}}"
    table_of(table, "machine_fields", at, example)
    for name in ("reassociate", "hiding", "replan"):
        flag_of(table, name, at, True)
    if (error := _target_error(table, folder)) is not None:
        key = _key_of_target_error(table, folder, error)
        place, field = at / key, error.at.rpartition("  ")[2]
        if key == "machine_fields" and isinstance(error, TargetError) and field:
            place /= field
        help = error.help or (example,)
        raise refusal(place, error.because, *help, what=error.refused) from error
    options: dict[str, Any] = {}
    if "reassociate" in table:
        options["reassociate"] = table["reassociate"]
    if "tune" in table:
        identity["tune"] = _tune_arguments(table, identity, at, folder)[0]
        for name in (one for one in ("strategy", "schedule", "price", "draw") if one in table):
            raise refusal(at / name, "what is tuned decides that itself", "tune = {…}")
    if "draw" in table:
        whole_of(table, "draw", at, 0, 0)
        for name in (one for one in ("strategy", "schedule", "price") if one in table):
            raise refusal(at / name, "a schedule is drawn", "draw = 0")
    return options


def _target_error(table: Mapping[str, Any], folder: Path) -> OffcutError | None:
    """Return why a contender has no target; None where it has one."""
    try:
        if isinstance(target := target_of(table, folder), str) and target != "cpu":
            oc.target(target)
    except OffcutError as error:
        return error
    return None


def _key_of_target_error(table: Mapping[str, Any], folder: Path, error: OffcutError) -> str:
    """Return the key of a contender's table from which on it has this error."""
    stated = [key for key in TARGET_KEYS if key in table]
    for count, key in enumerate(stated, 1):
        some = {one: table[one] for one in stated[:count]}
        if str(_target_error(some, folder)) == str(error):
            return key
    return stated[-1]


def _tune_arguments(
    contender: Mapping[str, Any], identity: dict[str, Any], at: Place, folder: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what ``tune = {…}`` says as plain data, and as arguments of `oc.tune`; digests of what it names go to `identity`."""
    table = table_of(contender, "tune", at, 'tune = {explorer = "anneal", trials = 64}')
    at = at / "tune"
    check_keys(table, TUNE, at)
    stated: dict[str, Any] = {
        "explorer": text_of(table, "explorer", at, "anneal"),
        "trials": whole_of(table, "trials", at, 64, 1),
        "seed": whole_of(table, "seed", at, 0, 0),
        "price": text_of(table, "price", at, "closed"),
    }
    arguments = dict(stated)
    if "budget" in table:
        stated["budget"] = seconds_of(table, "budget", at, 0.3)
        arguments["limits"] = Limits(budget=stated["budget"])
    is_own_price = stated["price"] not in PRICES and not stated["price"].endswith(".json")
    for name, is_own in (("explorer", ":" in stated["explorer"]), ("price", is_own_price)):
        if is_own:
            custom = load_named(stated[name], f"offcut.{name}s", folder, at / name, PRICES)
            identity[f"{name}_digest"] = custom.digest
            arguments[name] = custom.value() if isinstance(custom.value, type) else custom.value
    if "features" in table:
        place, example = at / "features", 'features = ["mine:size"]'
        stated["features"] = texts_of(table["features"], place, example)
        features = [load_named(x, "offcut.features", folder, place) for x in stated["features"]]
        for one in features:
            check_callable(one, place, "a case of a search")
        identity["feature_digests"] = [one.digest for one in features]
        arguments["features"] = [one.value for one in features]
    try:
        get_explorer(arguments["explorer"])
    except OffcutError as error:
        raise refusal(at / "explorer", error.because, *error.help, what=error.refused) from error
    return stated, arguments


def compile_options(
    options: Mapping[str, Any], table: Mapping[str, Any], folder: Path, operator: Operator
) -> dict[str, Any]:
    """Return the arguments of `oc.compile` for an operator: the target, and the schedule where one is tuned, or its loads are not hidden."""
    compile_arguments = dict(options)
    target = target_of(table, folder)
    if target != "cpu":
        compile_arguments["target"] = target
    if "schedule" in compile_arguments:
        compile_arguments["schedule"] = oc.Schedule.parse(compile_arguments["schedule"])
    if "tune" in table:
        _, arguments = _tune_arguments(table, {}, Place(operator.name), folder)
        compile_arguments["schedule"] = tuned_schedule(operator, compile_arguments, arguments)
    if "draw" in table:
        number = whole_of(table, "draw", Place(operator.name), 0, 0)
        compile_arguments["schedule"] = drawn_schedule(operator, compile_arguments, number)
    if not table.get("replan", True):
        as_described = {key: table[key] for key in table if key != "machine_fields"}
        known = {**compile_arguments, "target": target_of(as_described, folder)}
        compile_arguments["schedule"] = policy_schedule(operator, known)
        compile_arguments.pop("strategy", None)
    if not table.get("hiding", True):
        compile_arguments["schedule"] = unhidden_schedule(operator, compile_arguments)
        compile_arguments.pop("strategy", None)
    return compile_arguments


def target_of(table: Mapping[str, Any], folder: Path) -> Any:
    """Return the target of a contender: a name, or `oc.target` of a machine, a file beside the study or one that is shipped."""
    name, machine = table.get("target", "cpu"), table.get("machine")
    device, fields = table.get("device"), table.get("machine_fields", {})
    if machine is None and device is None and not fields:
        return name
    described: Any = machine
    if machine is not None and (folder / machine).is_file():
        described = folder / machine
    target = oc.target(name, machine=described, device=device)
    if fields:
        target = oc.target(name, machine=change_fields(target.machine, fields), device=device)
    return target


def change_fields(machine: Device, changes: Mapping[str, Any]) -> Device:
    """Return a description with other values: ``{dram = {bytes_per_cycle = 16.0}, memory = {inputs = {bytes = 65536}}}``.

    An entry of a list is named by its ``name``, or by its number: ``unit = {0 = {rows = 2}}``.

    Raises TargetError for a field that the description has not.
    """
    stated = plain(machine)
    _change(stated, changes)
    return of_plain(stated)


def _change(stated: Any, changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        place: Any = key
        if isinstance(stated, list):
            place = _entry(stated, key)
        if isinstance(value, Mapping):
            if isinstance(stated, dict):
                stated.setdefault(place, {})
            _change(stated[place], value)
        else:
            stated[place] = value


def _entry(stated: list[dict[str, Any]], key: str) -> int:
    """Return the number of an entry of a list, which is named, or numbered from 0 on.

    Raises DescribeError where there is none.
    """
    names = [str(one.get("name", number)) for number, one in enumerate(stated)]
    if key in names:
        return names.index(key)
    if key.isdecimal() and int(key) < len(stated):
        return int(key)
    because = f"the description has no {key!r} there, but {', '.join(names)}"
    raise refusal("machine_fields", because, what="cannot change the machine")


def _described(operator: Operator, because: str, what: str) -> Described:
    """Return the workload of an operator that is one kernel.

    Raises DescribeError for a model.
    """
    if not isinstance(operator.workload, Described):
        raise refusal(operator.name, because, what=what)
    return operator.workload


def tuned_schedule(
    operator: Operator, options: Mapping[str, Any], arguments: Mapping[str, Any]
) -> oc.Schedule:
    """Return the schedule that `oc.tune` finds for an operator over the distribution of its sizes.

    options    of `oc.compile`; arguments: explorer, trials, seed, price and limits of `oc.tune`

    What one contender has measured, another one of this process takes from the same records, as long as operator and target
    are the same: who searches what is compared, not whose trial was lucky.
    """
    workload = _described(operator, "a model is not tuned as a whole", "cannot tune")
    weights = {name: dict(one.weights) for name, one in operator.axes.items() if one.swept}
    folder = _RECORDS[-1] if _RECORDS else Path(_records_folder().name)
    tune_keys = ("target", "threads", "reassociate", "microkernels")
    tune_options = {name: options[name] for name in tune_keys if name in options}
    name = digest({"operator": operator.identity, "options": {**tune_options, "target": ""}})
    target = tune_options.get("target", "cpu")
    machine = target if isinstance(target, str) else digest(plain(target.machine))
    return oc.tune(
        workload.output,
        workload.inputs,
        constants=list(workload.constants),
        sizes=weights,
        records=folder / f"{name}-{machine}.sqlite",
        progress=False,
        **tune_options,
        **arguments,
    )


_RECORDS: list[Path] = []
"""The folder of `keep_records_in`, if it was called."""


def keep_records_in(folder: Path) -> None:
    """Keep the records of tuned contenders in a folder of the caller's from now on."""
    _RECORDS[:] = [folder]


@cache
def _records_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="offcut-study-")


def drawn_schedule(operator: Operator, options: Mapping[str, Any], number: int) -> oc.Schedule:
    """Return the schedule with a number of those that are drawn at random, each once, from the space that tuning searches.

    number  from 0 on

    Raises DescribeError for a model, and if the space has fewer schedules.
    """
    workload = _described(operator, "a model has no single schedule", "cannot draw")
    texts = {name: str(value) for name, value in options.items()}
    known = {"program": workload.program.digest, "constants": workload.constants}
    key = digest({**known, "options": texts})
    if key not in _DRAWS:
        _DRAWS[key] = [], _new_schedules(workload, options)
    schedules, more = _DRAWS[key]
    schedules.extend(islice(more, max(number + 1 - len(schedules), 0)))
    if number >= len(schedules):
        before = f"gave none but the {len(schedules)} before"
        because = f"of its space, {MAX_REPEATS} draws in a row {before}"
        raise refusal(operator.name, because, f"draw = {len(schedules) - 1}", what="cannot draw")
    return schedules[number]


MAX_REPEATS = 64
"""Draws in a row that may give nothing new before a space counts as exhausted."""

_DRAWS: dict[str, tuple[list[oc.Schedule], Iterator[oc.Schedule]]] = {}
"""By program and options: the schedules that were drawn, and the iterator that draws the next ones."""


def _new_schedules(workload: Described, options: Mapping[str, Any]) -> Iterator[oc.Schedule]:
    """Yield schedules at random, each once; end after `MAX_REPEATS` draws in a row that give no new one."""
    arguments = dict(options)
    target = arguments.pop("target", "cpu")
    target = oc.target(target) if isinstance(target, str) else target
    constants = zero_constants(workload.constants, workload.output, workload.inputs, "study")
    request = make_request(workload.output, workload.inputs, constants, "study")
    known = target.options("study", **arguments)
    space = target.space(proved_plan(target, request, known), request, known, 1)
    draw, texts, repeats = Random(0), set[str](), 0
    while repeats < MAX_REPEATS:
        schedule = space.sample(draw)
        repeats = repeats + 1 if str(schedule) in texts else 0
        texts.add(str(schedule))
        if not repeats:
            yield schedule


def policy_schedule(operator: Operator, options: Mapping[str, Any]) -> oc.Schedule:
    """Return the schedule that the target decides for an operator."""
    workload = _described(operator, "a model has no single schedule", "cannot schedule")
    schedule: oc.Schedule = workload.compiled(options).kernel.schedule
    return schedule


def unhidden_schedule(operator: Operator, options: Mapping[str, Any]) -> oc.Schedule:
    """Return the schedule that a machine of queues would run, with one window of everything: no load is hidden behind another tile.

    Raises OffcutError where the schedule has no windows.
    """
    schedule = policy_schedule(operator, options)
    if not any(isinstance(step, At) and step.depth > 1 for step in schedule.steps):
        because, help = (
            "its schedule has no windows that take turns",
            ('target = "vta"', "hiding = true"),
        )
        what = f"cannot stop hiding in {operator.name}"
        raise OffcutError("study", what, because=because, help=help)
    steps = (replace(one, depth=1) if isinstance(one, At) else one for one in schedule.steps)
    return replace(schedule, steps=tuple(steps))
