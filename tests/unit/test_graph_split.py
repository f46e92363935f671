"""A model on several targets: each kernel on the first that takes it, the split printed, the bits those of one."""

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from offcut.backends.interpret.target import Interpret
from offcut.backends.target import TargetPlan
from offcut.errors import DescribeError, TargetError
from tests.agree import agree, of_peer
from tests.facade import Bound, Builder, compile_graph, interpret_graph


class Integers(Interpret):
    """It runs what has no float in it."""

    name = "integers"

    def policy(self, program: Any, *rest: Any) -> Iterator[TargetPlan]:
        """The program as it stands.

        Raises TargetError where an array of it holds floats.
        """
        for one in program.buffers:
            if one.dtype.startswith("float"):
                because = f"{one.name} is of {one.dtype}"
                raise TargetError("compile", f"cannot plan {program.name}", because=because)
        yield from super().policy(program, *rest)


def layers() -> Bound:
    """A product of integers, requantised, and a softmax over it."""
    made = Builder("layers")
    x = made.input("x", "int8", (made.size("n", 1, 64), 6))
    w = made.constant("w", np.arange(-12, 12, dtype="int8").reshape(6, 4))
    small = made.node("requantize", made.node("dense", x, w), 3, low=0)
    scores = made.node("dequantize", small, 0.25)
    made.output(small, made.node("softmax", scores))
    return made.bound


def test_each_kernel_runs_on_the_first_target_that_takes_it_and_the_plan_says_why() -> None:
    model = compile_graph(layers(), threads=1, target=(Integers(), "cpu"))
    assert (
        str(model.plan())
        == """\
layers(): 2 kernels, 2 distinct
value       operators           target    shape   memory
requantize  dense requantize    integers  [n, 4]  result
softmax     dequantize softmax  cpu       [n, 4]  result
arena: 0 bytes
softmax: runs on cpu, since integers refuses it: v2_max is of float32"""
    )
    for rows in (1, 3, 64):
        x = np.random.default_rng(rows).integers(-128, 127, (rows, 6), "int8")
        found, alone = model({"x": x}), compile_graph(layers(), threads=1)({"x": x})
        expected = interpret_graph(layers(), {"x": x})
        for name in found:
            np.testing.assert_array_equal(found[name], alone[name])
            agree(found[name], of_peer(expected[name], 0, 16))


def test_a_split_model_is_pickled_with_its_targets() -> None:
    model = pickle.loads(
        pickle.dumps(compile_graph(layers(), threads=1, target=(Integers(), "cpu")))
    )
    assert [step.target for step in model.steps] == ["integers", "cpu"]


def test_what_no_target_takes_is_refused_by_the_last() -> None:
    with pytest.raises(TargetError, match="is of float32"):
        compile_graph(layers(), target=(Integers(),))
    with pytest.raises(DescribeError) as refused:
        compile_graph(layers(), target=())
    assert str(refused.value) == (
        "graph: cannot compile for target=()\n"
        "  because  there is no target in it\n"
        '  help     target="cpu"\n'
        '  help     target=("vta", "cpu")'
    )
