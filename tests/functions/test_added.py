"""A row is all that a new function of elements takes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.functions.scratch import copied, said


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("copy"))


def test_a_function_runs_whose_row_was_added(scratch: Path) -> None:
    said(scratch, "tests.functions.added", "float32")


@pytest.mark.slow
def test_a_function_runs_of_every_element_type(scratch: Path) -> None:
    said(scratch, "tests.functions.added", "float64", "float16", "bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize("host", ["torch", "onnx", "mlir", "tvm"])
def test_each_host_knows_a_function_whose_row_was_added(scratch: Path, host: str) -> None:
    needs = {"mlir": "xdsl"}.get(host, host)
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"the extra {host} is not installed")
    said(scratch, "tests.functions.added", host)
