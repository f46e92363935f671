"""Random contractions, epilogues, strategies, sizes and strides against numpy in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from compiled import Array, build, contraction, floats, poisoned
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import offcut as oc
from offcut import Tensor

SIZES = [0, 1, 2, 3, 7, 8, 13, 14, 15, 16, 17, 29, 31, 33, 48, 65]
NAMES = ("guard", "cut", "mask", "pad", "shift", "ladder", "balance")
ON_SUMS = ("guard", "cut", "mask", "pad")

EPILOGUES: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "none": (lambda h: h, lambda h: h),
    "relu": (lambda h: oc.maximum(h, 0.0), lambda h: np.maximum(h, 0)),
    "tanh": (oc.tanh, np.tanh),
    "scale": (lambda h: h * 0.5 - 1.0, lambda h: h * 0.5 - 1),
    "sigmoid": (lambda h: 1.0 / (1.0 + oc.exp(-h)), lambda h: 1 / (1 + np.exp(-h))),
    "leaky": (lambda h: oc.where(h > 0.0, h, h * 0.25), lambda h: np.where(h > 0, h, h * 0.25)),
}
LIPSCHITZ = {"none": 1.0, "relu": 1.0, "tanh": 1.0, "scale": 0.5, "sigmoid": 0.25, "leaky": 1.0}


@dataclass(frozen=True)
class Drawn:
    """A contraction drawn at random.

    extents   of the letters that are constants
    constant  the operand that is known when compiled, by position; None: neither
    sizes     two sizes of every letter, for two calls of one kernel
    layouts   how the operands lie in memory
    """

    spec: str
    extents: dict[str, int]
    constant: int | None
    epilogue: str
    bias: bool
    strategy: str | dict[str, str]
    sizes: tuple[dict[str, int], dict[str, int]]
    layouts: tuple[str, str]


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    batch = "ab"[: draw(st.integers(0, 2))]
    rows, columns = draw(st.sampled_from(["m", "", "mi"])), draw(st.sampled_from(["n", "", "nj"]))
    depth = draw(st.sampled_from(["k", "k", "kl"]))
    shared = batch if draw(st.booleans()) else ""  # a batch axis may be of one operand alone
    left = "".join(draw(st.permutations([*batch, *rows, *depth])))
    right = "".join(draw(st.permutations([*shared, *columns, *depth])))
    result = "".join(draw(st.permutations([*batch, *rows, *columns])))
    letters = sorted({*left, *right})
    small = st.sampled_from([1, 2, 3, 5])
    some = st.sampled_from(SIZES)

    def size(letter: str) -> int:
        return draw(some if letter in "mnk" else small)

    constant = draw(st.sampled_from([None, 0, 1]))
    held = (left, right)[constant] if constant is not None else ""
    fixed = {letter for letter in letters if draw(st.integers(0, 3)) == 0}
    extents = {letter: size(letter) for letter in letters if letter in fixed}
    known = extents | {letter: size(letter) for letter in held if letter not in extents}
    first, second = (
        {letter: known[letter] if letter in known else size(letter) for letter in letters}
        for _ in range(2)
    )
    by_axis = {
        f"C.{letter}": draw(st.sampled_from(ON_SUMS if letter in depth else NAMES))
        for letter in letters
        if draw(st.integers(0, 2)) == 0
    }
    return Drawn(
        f"{left},{right}->{result}",
        extents,
        constant,
        draw(st.sampled_from(sorted(EPILOGUES))),
        draw(st.booleans()),
        draw(st.one_of(st.sampled_from(NAMES), st.just("auto"), st.just(by_axis))),
        (first, second),
        (draw(st.sampled_from(LAYOUTS)), draw(st.sampled_from(LAYOUTS))),
    )


LAYOUTS = ("plain", "plain", "spread", "backwards", "Fortran", "one element")


def laid_out(array: Array, layout: str) -> Array:
    """The same values by other strides; with "one element", a single value by strides of 0."""
    if not array.ndim:
        return array
    match layout:
        case "spread":
            wide = np.full((*array.shape[:-1], 3 * array.shape[-1]), np.nan, array.dtype)
            wide[..., ::3] = array
            return wide[..., ::3]
        case "backwards":
            return np.flip(np.flip(array).copy())
        case "Fortran":
            return np.asfortranarray(array)
        case "one element":
            return np.broadcast_to(np.array(1.25, array.dtype), array.shape)
        case _:
            return array


def described(case: Drawn) -> tuple[Any, Tensor, list[Tensor]]:
    what = contraction(case.spec, case.extents)
    inputs, H = [*what.inputs], what.result
    letters = case.spec.split("->")[1]
    fn = EPILOGUES[case.epilogue][0]
    if case.epilogue == "none" and not case.bias:
        return what, H, inputs
    bias = oc.placeholder(H.shape[-1:], name="E")
    if case.bias:
        inputs.append(bias)

    def after(*axes: Any) -> Any:
        return fn(H[axes] + bias[axes[-1:]]) if case.bias else fn(H[axes])

    return what, oc.compute(H.shape, after, name="Y", axes=tuple(letters)), inputs


def check(case: Drawn) -> None:
    what, output, inputs = described(case)
    left, _, rest = case.spec.partition(",")
    right, _, result = rest.partition("->")
    held = {}
    if case.constant is not None:
        letters = (left, right)[case.constant]
        shape = tuple(case.sizes[0][letter] for letter in letters)
        held = {"AB"[case.constant]: floats("constant", *shape)}
    kernel = build(output, inputs=inputs, constants=held, strategy=case.strategy)
    for sizes in case.sizes:
        operands = [
            laid_out(floats(name, *(sizes[letter] for letter in letters)), layout)
            for name, letters, layout in zip("AB", (left, right), case.layouts, strict=True)
        ]
        if case.constant is not None:
            operands[case.constant] = held["AB"[case.constant]]
        shape = tuple(sizes[letter] for letter in result)
        bias = [floats("bias", shape[-1])] if case.bias else []
        given_arrays = [each for p, each in enumerate(operands) if p != case.constant]
        missing = {
            size.name: sizes[size.name]
            for size in kernel.signature.sizes
            if not any(size.name in dict(e.terms) for a in kernel.signature.inputs for e in a.shape)
        }
        found = poisoned(kernel, shape, *given_arrays, *bias, **missing)
        exact, scale = what.exact(operands)
        if case.bias:
            exact, scale = exact + bias[0], scale + abs(bias[0])
        bound = LIPSCHITZ[case.epilogue] * (what.terms(operands) + 3) * scale * 2.0**-23
        wanted = EPILOGUES[case.epilogue][1](exact)
        assert np.all(np.abs(found - wanted) <= bound + 2.0**-21 * (1 + np.abs(wanted)))


calm = (HealthCheck.too_slow, HealthCheck.data_too_large)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=calm)
@given(case=drawn().filter(lambda case: not (case.bias and case.spec.endswith("->"))))
def test_a_random_contraction_is_right(case: Drawn) -> None:
    check(case)


@pytest.mark.slow
@settings(max_examples=400, deadline=None, derandomize=False, suppress_health_check=calm)
@given(case=drawn().filter(lambda case: not (case.bias and case.spec.endswith("->"))))
def test_many_random_contractions_are_right(case: Drawn) -> None:
    check(case)
