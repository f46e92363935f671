"""What is said where the package of an extra is not installed: all are blocked, in one process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import metadata

import pytest
from conftest import refusals

from offcut.core.extras import EXTRAS

USES = refusals(
    r"""
torch
given ('torch', 'import offcut as oc\noc.from_torch(lambda x: x)')
from_torch: cannot take a model of torch

onnx
given ('onnx', "import offcut as oc\noc.from_onnx('model.onnx')")
from_onnx: cannot read ONNX files

mlir
given ('xdsl', 'import offcut.plugins.mlir')
import: cannot import offcut.plugins.mlir

tvm
given ('tvm', 'from offcut.plugins.tvm import partitioned')
import: cannot import offcut.plugins.tvm

plot
given ('matplotlib', "from offcut.experiment.outputs import plot_lines\nfrom pathlib import Path\nplot_lines(Path('x.png'), {}, title='', x_label='', footer='')")
plot: cannot draw x.png

pool
given ('distributed', "from offcut.search.pool import pool_of\npool_of('tcp://localhost:8786', 'tune')")
tune: cannot use a pool of devices

learned
given ('xgboost', "from offcut.costmodel.learned import library\nlibrary.load_xgboost('learn')")
learn: cannot use a learned model""",
    globals(),
)
BLOCKED = """\
import json, sys
uses = json.load(sys.stdin)
for package, _ in uses.values():
    sys.modules[package] = None
from offcut.errors import TargetError
told = dict.fromkeys(uses, "")
for extra, (_, call) in uses.items():
    try:
        exec(call)
    except TargetError as error:
        told[extra] = str(error)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """What is said of each extra."""
    ran = subprocess.run(
        [sys.executable, "-c", BLOCKED],
        input=json.dumps({extra: use for extra, (use, _) in USES.items()}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("extra", USES)
def test_what_is_missing_names_the_extra_that_installs_it(extra: str, told: dict[str, str]) -> None:
    (package, _), refused = USES[extra]
    assert EXTRAS[package] == extra
    assert extra in metadata("offcut").get_all("Provides-Extra", [])
    assert (
        told[extra]
        == f"""\
{refused}
  because  {package} is not installed
  help     this needs the extra "{extra}": pip install ".[{extra}]" in the folder of offcut"""
    )


def test_every_package_of_an_extra_is_asked_for() -> None:
    assert {package for (package, _), _ in USES.values()} == EXTRAS.keys()
