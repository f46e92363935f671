"""What every target keeps, whatever it runs on: results, bits, checks of calls, and what it says of itself."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut import Kernel, Target
from tests.agree import agree, of_program
from tests.facade import called, claimed, described, evaluate, policy

from .programs import Array, Case, case, case_of_bytes

SEEDS = range(24)


def sizes(target: Target) -> list[int]:
    """Rows against the tallest tile of the target: nothing, one, one short, a tile, one over."""
    tallest = max((kernel.max_rows for kernel in target.microkernels()), default=4)
    return sorted({0, 1, tallest - 1, tallest, tallest + 1})


def taken(target: Target, seed: int) -> Case:
    """The program of a seed; on int8 where the target refuses its elements, in words."""
    what = case(seed)
    try:
        policy(target, what.result, what.inputs)
    except oc.TargetError:
        with pytest.raises(oc.TargetError, match=r"because(.|\n)*help"):
            policy(target, what.result, what.inputs)
        return case_of_bytes(seed)
    return what


def poison(kernel: Kernel, what: Case, n: int) -> Array:
    """An array for the result, full of what no result is."""
    (output,) = kernel.signature.outputs
    shape = tuple(int(evaluate(extent, {"n": n})) for extent in output.shape)
    integer = output.dtype.startswith("int")
    return np.full(shape, np.iinfo(output.dtype).min if integer else np.nan, output.dtype)


def expected(what: Case, arrays: list[Array], n: int) -> Any:
    """The program as it was described, statement by statement."""
    program = described(what.result, what.inputs)
    names = (tensor.name for tensor in what.inputs)
    return of_program(program, dict(zip(names, arrays, strict=True)), n=n)


@pytest.mark.every(12)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program_gives_its_results_at_every_size(target: Target, seed: int) -> None:
    what = taken(target, seed)
    kernel = oc.compile(what.result, inputs=what.inputs, target=target)
    for n in sizes(target):
        arrays = what.arrays(n)
        before = [array.copy() for array in arrays]
        out = poison(kernel, what, n)
        assert kernel(*arrays, out=out) is out
        agree(out, expected(what, arrays, n))
        np.testing.assert_array_equal(kernel(*arrays), out)
        for array, kept in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, kept)


@pytest.mark.every(6)
@pytest.mark.parametrize("seed", [0, 4, 8, 12])
def test_rows_have_the_same_bits_in_every_batch(target: Target, seed: int) -> None:
    what = taken(target, seed)
    most = 3 * sizes(target)[-1]
    weights = dict(zip([t.name for t in what.inputs[1:]], what.arrays(most)[1:], strict=True))
    kernel = oc.compile(what.result, inputs=what.inputs, constants=weights, target=target)
    (rows,) = what.arrays(most)[:1]
    whole = kernel(rows)
    for n in sizes(target):
        assert kernel(np.ascontiguousarray(rows[:n])).tobytes() == whole[:n].tobytes()


@pytest.mark.every(7)
@pytest.mark.parametrize("seed", [0, 4, 8, 12, 1, 2, 3])
def test_the_microkernels_that_tiles_name_are_those_that_the_code_calls(
    target: Target, seed: int
) -> None:
    what = taken(target, seed)
    planned = policy(target, what.result, what.inputs)
    runs = called(target, planned, what.result, what.inputs)
    if runs is not None:
        assert claimed(planned.program) == runs
        assert runs <= {kernel.name for kernel in target.microkernels()}


def test_a_plan_and_every_form_are_shown(target: Target) -> None:
    what = taken(target, 0)
    kernel = oc.compile(what.result, inputs=what.inputs, target=target)
    assert str(kernel.plan(n=5)).startswith(kernel.signature.name)
    assert kernel.source("loops") == str(kernel.loops) == str(oc.parse(kernel.source()))
    for form in target.source_forms:
        assert kernel.source(form).strip()
    with pytest.raises(oc.DescribeError) as refused:
        kernel.source("punched cards")
    assert str(refused.value).startswith("source: cannot show 'punched cards'")
    assert str(target.plan(what.result, what.inputs, n=5)) == str(kernel.plan(n=5))


def test_calls_are_checked(target: Target) -> None:
    what = taken(target, 0)
    kernel = oc.compile(what.result, inputs=what.inputs, target=target)
    arrays = what.arrays(5)
    result = kernel(*arrays)
    frozen = np.empty_like(result)
    frozen.flags.writeable = False
    bad: list[tuple[list[Any], dict[str, Any]]] = [
        (arrays[:-1], {}),
        ([*arrays, arrays[0]], {}),
        ([arrays[0].astype("complex64"), *arrays[1:]], {}),
        ([arrays[0][None], *arrays[1:]], {}),
        ([arrays[0][:, :0], *arrays[1:]], {}),
        ([np.zeros((4097, arrays[0].shape[1]), arrays[0].dtype), *arrays[1:]], {}),
        (arrays, {"m": 3}),
        (arrays, {"out": result[:-1]}),
        (arrays, {"out": frozen}),
    ]
    for given, named in bad:
        with pytest.raises(oc.CallError) as refused:
            kernel(*given, **named)
        assert str(refused.value).startswith(f"{kernel.signature.name}: ")


def test_strided_arrays_and_constants_are_read_where_they_are(target: Target) -> None:
    what = taken(target, 0)
    arrays = what.arrays(7)
    plain = oc.compile(what.result, inputs=what.inputs, target=target)
    turned = [np.asfortranarray(array) for array in arrays]
    np.testing.assert_array_equal(plain(*turned), plain(*arrays))
    names = [tensor.name for tensor in what.inputs]
    weights = {name: arrays[names.index(name)] for name in what.weights}
    bound = oc.compile(what.result, inputs=what.inputs, constants=weights, target=target)
    for found in (bound(arrays[0]), plain(*arrays)):
        agree(found, expected(what, arrays, 7))
    other = {name: array * 0 for name, array in weights.items()}
    assert not bound.with_constants(other)(arrays[0]).any()


def test_a_kernel_is_pickled_and_kept(target: Target, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path))
    what = taken(target, 1)
    kernels = [oc.compile(what.result, inputs=what.inputs, target=target) for _ in range(2)]
    again = pickle.loads(pickle.dumps(kernels[0]))
    for kernel in (kernels[1], again):
        np.testing.assert_array_equal(kernel(*what.arrays(9)), kernels[0](*what.arrays(9)))


def test_a_program_that_is_updated_in_place_leaves_its_input(target: Target) -> None:
    program = oc.parse(
        "program steps\nsize n in 0:4097\ninout X: float32[n + 2]\n"
        "for t in 0:3\n  for i in 0:n\n    X[i + 1] = X[i] + X[i + 2]\n"
    )
    try:
        kernel = oc.compile(program, target=target)
    except oc.TargetError as refused:
        pytest.skip(f"{target.name} runs no such program, whatever its elements: {refused.because}")
    for n in sizes(target):
        x = np.arange(n + 2, dtype="float32")
        reference = program.run({"X": x})
        np.testing.assert_array_equal(kernel(x), reference)
        np.testing.assert_array_equal(x, np.arange(n + 2, dtype="float32"))
        assert kernel(x, out=x) is x
        np.testing.assert_array_equal(x, reference)


def test_a_machine_is_described(target: Target) -> None:
    assert target.machine.name
    assert target.machine.hertz > 0
    assert target.name in oc.targets()
    assert repr(target) == f"<target {target.name} for {target.machine.name}>"
