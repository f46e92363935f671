"""The names of the public face: functions, packages, and the one that is both."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import pytest

import offcut as oc
from offcut import pipeline

AS_A_PACKAGE = """
import offcut.partition.strategies as strategies
import offcut
from offcut.partition import Strategy
assert offcut.partition.strategies is strategies and strategies.Strategy is Strategy
"""
AS_A_FUNCTION = """
import offcut
program = offcut.parse("size n in 0:9\\noutput A: float32[n]\\nfor i in 0:n\\n  A[i] = 1.0\\n")
assert offcut.partition(program, tile={"i": 4}).loops != program
"""


@pytest.mark.parametrize(
    "code",
    [AS_A_PACKAGE + AS_A_FUNCTION, AS_A_FUNCTION + AS_A_PACKAGE],
    ids=["package", "function"],
)
def test_partition_is_a_function_and_a_package_whichever_comes_first(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_partition_has_the_signature_of_its_function_and_can_be_pickled() -> None:
    assert inspect.signature(oc.partition) == inspect.signature(pipeline.partition)
    assert pickle.loads(pickle.dumps(oc.partition)) is oc.partition
    assert callable(oc.partition)


def test_every_public_name_is_there() -> None:
    for name in oc.__all__:
        assert name in dir(oc)
        assert callable(getattr(oc, name)) or name in ("external", "ops")
