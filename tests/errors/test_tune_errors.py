"""Every refusal of tuning, word for word; what is accepted is in unit/test_tuning and unit/test_distribution."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut.errors import OffcutError
from offcut.tuning.problem import read_sizes
from tests.facade import Limits

n, m = oc.dim("n", min=2, max=512, multiple_of=2), oc.dim("m", min=1, max=64)
A = oc.placeholder((n, 8), name="A")
DOUBLED = oc.compute((n, 8), lambda i, j: A[i, j] * 2.0, name="C")
P, Q = oc.placeholder((n, m), name="P"), oc.placeholder((n, m), name="Q")
ADDED = oc.compute((n, m), lambda i, j: P[i, j] + Q[i, j], name="S")
HELP = """\
  help     sizes={"n": [1, 7, 33]}
  help     sizes={"n": (1, 512)}
  help     sizes={"n": {1: 0.7, 33: 0.3}}"""


def divides(schedule: oc.Schedule, n: int) -> float:
    return 1 / 0


def says(schedule: oc.Schedule, n: int) -> str:
    return "cheap"


CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    **refusals(
        """\
a size that is not there
given DOUBLED, {'sizes': {'k': [2]}}
tune: cannot tune for k
  at       sizes=
  because  the sizes are n

out of range
given DOUBLED, {'sizes': {'n': [2, 514]}}
tune: cannot tune for 514
  at       sizes of n
  because  n is from 2 to 512

no multiple
given DOUBLED, {'sizes': {'n': [3]}}
tune: cannot tune for 3
  at       sizes of n
  because  n is a multiple of 2

no whole number
given DOUBLED, {'sizes': {'n': [2.5]}}
tune: cannot tune for 2.5
  at       sizes of n
  because  it is not a whole number

no list
given DOUBLED, {'sizes': {'n': 4.5}}
tune: cannot tune for 4.5
  at       sizes of n
  because  it is not a list, range, pair or mapping

an empty list
given DOUBLED, {'sizes': {'n': []}}
tune: cannot tune for []
  at       sizes of n
  because  there is no value in it

ends that descend
given DOUBLED, {'sizes': {'n': (64, 2)}}
tune: cannot tune for (64, 2)
  at       sizes of n
  because  a tuple is both ends, ascending

a weight below 0
given DOUBLED, {'sizes': {'n': {2: -1.0}}}
tune: cannot tune for -1.0
  at       sizes of n
  because  a weight is a number that is at least 0

no weight
given DOUBLED, {'sizes': {'n': {2: 0.0}}}
tune: cannot tune for {2: 0.0}
  at       sizes of n
  because  some weight is above 0

trials 0
given DOUBLED, {'sizes': {'n': [2]}, 'trials': 0}
tune: cannot take trials=0
  because  trials is an int, at least 1

alternatives
given DOUBLED, {'sizes': {'n': [2]}, 'alternatives': True}
tune: cannot take alternatives=True
  because  alternatives is an int, at least 1

seconds
given DOUBLED, {'sizes': {'n': [2]}, 'seconds': 0.0}
tune: cannot take seconds=0.0
  because  seconds is a number above 0

seed
given DOUBLED, {'sizes': {'n': [2]}, 'seed': '0'}
tune: cannot take seed='0'
  because  seed is an int of 64 bits

a seed that no record holds
given DOUBLED, {'sizes': {'n': [2]}, 'seed': 2 ** 64}
tune: cannot take seed=18446744073709551616
  because  seed is an int of 64 bits

constants
given DOUBLED, {'sizes': {'n': [2]}, 'constants': 3}
tune: cannot take constants=3
  because  constants is names of inputs, or arrays by name

features
given DOUBLED, {'sizes': {'n': [2]}, 'features': 3}
tune: cannot take features=3
  because  features is functions of a Case, one after the other

limits
given DOUBLED, {'sizes': {'n': [2]}, 'limits': {}}
tune: cannot take limits={}
  because  limits is Limits(…)

progress
given DOUBLED, {'sizes': {'n': [2]}, 'progress': 3}
tune: cannot take progress=3
  because  progress is a function that is told of each trial, True or False

price
given DOUBLED, {'sizes': {'n': [2]}, 'price': 3.0}
tune: cannot take price=3.0
  because  it is not a function
  help     lambda schedule, n: 2e-9 * n

a price that raises
given DOUBLED, {'sizes': {'n': [2]}, 'price': divides, 'explorer': 'random'}
tune: cannot take price=divides
  because  it raised ZeroDivisionError: division by zero
  help     lambda schedule, n: 2e-9 * n

a price that is none
given DOUBLED, {'sizes': {'n': [2]}, 'price': says, 'explorer': 'random'}
tune: cannot take price=says
  because  it gave 'cheap', and a price is seconds, at least 0
  help     lambda schedule, n: 2e-9 * n

a target that decides nothing
given DOUBLED, {'sizes': {'n': [2]}, 'target': 'interpret'}
tune: cannot tune C for target='interpret'
  because  target='interpret' decides nothing that a schedule says

no target
given DOUBLED, {'sizes': {'n': [2]}, 'target': 'tpu'}
target: cannot plan for 'tpu'
  because  there is no such target
  help     target="accelerator", target="cpu", target="cuda", target="gemmini", target="interpret", target="vta", target="vta-osdi18"
""",
        globals(),
    ),
    "no sizes": (
        DOUBLED,
        {},
        f"""\
tune: cannot tune for None
  because  it does not say which values n take
{HELP}""",
    ),
    "a size is missing": (
        ADDED,
        {"sizes": {"n": [2]}},
        f"""\
tune: cannot tune for {{'n': [2]}}
  because  it does not say which values m take
{HELP}""",
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_what_cannot_be_tuned_is_refused(case: str, tmp_path: Path) -> None:
    output, given, text = CASES[case]
    with pytest.raises(OffcutError) as refused:
        oc.tune(output, records=tmp_path / "r", **given)
    assert str(refused.value) == text
    assert not (tmp_path / "r").exists()


def test_records_are_a_file() -> None:
    with pytest.raises(OffcutError) as refused:
        oc.tune(DOUBLED, sizes={"n": [2]}, records=3)
    assert str(refused.value) == (
        "tune: cannot take records=3\n  because  records is the path of a file, or Records(path)"
    )


def test_records_are_kept_in_a_file() -> None:
    with pytest.raises(OffcutError) as refused:
        oc.Records(3)  # type: ignore[arg-type]
    assert str(refused.value) == (
        'records: cannot keep records in 3\n  because  records are a file\n  help     Records("a file")'
    )


def test_sizes_that_no_call_has_are_refused(tmp_path: Path) -> None:
    a, b = oc.dim("a", max=64), oc.dim("b", max=64)
    oc.assume(a <= b)
    X = oc.placeholder((a, b), name="X")
    Y = oc.compute((a, b), lambda i, j: X[i, j] + 1.0, name="Y")
    with pytest.raises(OffcutError) as refused:
        oc.tune(Y, sizes={"a": [1, 9], "b": [8]}, records=tmp_path / "r")
    assert (
        str(refused.value)
        == """\
tune: cannot tune for a = 9, b = 8
  at       sizes=
  because  every call meets a <= b"""
    )


READ = {
    "n": "it is not a name with a list or a range of whole numbers from 0 on",
    "n=1,": "it is not a name with a list or a range of whole numbers from 0 on",
    "n=1:2:0": "the range does not advance: its step is 0",
    "=3": "it is not a name with a list or a range of whole numbers from 0 on",
}


@pytest.mark.parametrize("text", list(READ))
def test_sizes_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(OffcutError) as refused:
        read_sizes([text])
    assert (
        str(refused.value)
        == f"""\
tune: cannot read the sizes
  at       --sizes {text}
  because  {READ[text]}
  help     --sizes n=1,7,33
  help     --sizes n=1:512
  help     --sizes n=1:512:8"""
    )


def test_a_size_is_given_once() -> None:
    with pytest.raises(OffcutError, match="--sizes n=… came before"):
        read_sizes(["n=1", "n=2"])


LIMITS: dict[str, tuple[Any, str, str]] = {
    "budget": (-1, "a number", "0.3"),
    "patience": ("60", "a number", "60.0"),
    "resolution": ([1], "a number", "0.02"),
    "hopeless": (None, "a number", "4.0"),
    "noise": (nan, "a number", "0.5"),
    "reference": (True, "a number", "300.0"),
    "memory": (1.5, "an int", "4294967296"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_a_number_above_0_or_from_0_on(name: str) -> None:
    value, kind, default = LIMITS[name]
    end = "from 0 on" if name == "noise" else "above 0"
    with rejection(f"""\
DescribeError: Limits: cannot take {name}={value!r}
  because  {name} is {kind} {end}
  help     Limits({name}={default})"""):
        Limits(**{name: value})
    assert Limits(noise=0).noise == 0
    assert Limits(noise=inf, memory=np.int64(1 << 30), budget=np.float32(0.5)).patience == 60.0
