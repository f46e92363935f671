"""Contractions as text, and their float64 reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import rejection

from offcut.errors import DescribeError
from offcut.studies.contraction import build, check_letters, parse_contraction
from offcut.studies.peers import Numpy, as_matmul
from offcut.studies.peers.operators import STEP_FUNCTIONS
from tests.problems import make_problem

MATMULS = ["mk,kn->mn", "km,kn->mn", "mk,nk->nm", "bij,bkj->bik", "mk,k->m", "k,kn->n", "m,n->mn"]
MATMULS += ["bmk,kn->bmn", "abik,abkj->abij", "i,i->i", "abc,bcd->cad"]
OTHERS = ["mk->m", "mij,jn->mn", "ii,ij->j", "mk,kn,nj->mj", "bki,kj->bij"]
SIZES = dict(zip("mknbijacd", (5, 4, 3, 2, 4, 3, 3, 2, 2), strict=True))


def test_a_text_names_operands_result_and_reduced_axes() -> None:
    contraction = parse_contraction(" bij, bkj -> bik ")

    assert contraction.operands == ("bij", "bkj")
    assert contraction.result == "bik"
    assert contraction.letters == ("b", "i", "j", "k")
    assert contraction.summed_letters == ("j",)
    assert contraction.names == ("A", "B")
    assert str(contraction) == "bij,bkj->bik"
    flops = [("mk,kn->mn", 2 * 5 * 4 * 3), ("m,n->mn", 15), ("mk->m", 20), ("m->m", 0)]
    for text, flop in flops:
        assert parse_contraction(text).flop(SIZES) == flop


@pytest.mark.parametrize(
    ("text", "because", "help"),
    [
        ("mk,kn", "it has no '->', so the result's axes are not known", '"mk,kn->mn"'),
        ("m1,1n->mn", "'1' is not a letter", '"mk,kn->mn": one letter per axis'),
        ("mk,->m", "an operand has no axis", '"mk,kn->mn": a letter per axis, a comma'),
        (
            "mk kn->mn",
            "'k k' has a blank between two axes: it could be a comma, or nothing",
            '"mk,kn->mn"',
        ),
        (
            "m k, k n->m n",
            "'m k' has a blank between two axes: it could be a comma, or nothing",
            '"mk,kn->mn"',
        ),
        (
            "mk,kn->m n",
            "'m n' has a blank between two axes: it could be a comma, or nothing",
            '"mk,kn->mn"',
        ),
        ("mk,kn->mj", "the result has the axis 'j' and no operand has it", '"mk,kn->m"'),
        ("mk,kn->mm", "the result has the axis 'm' twice", '"mk,kn->m"'),
    ],
)
def test_a_text_that_is_no_contraction_is_refused(text: str, because: str, help: str) -> None:
    with rejection(
        "DescribeError: contraction: cannot read the text\n"
        f'  at       "{text}"\n'
        f"  because  {because}\n"
        f"  help     {help}"
    ):
        parse_contraction(text)


@pytest.mark.parametrize(
    ("fixed", "swept", "because"),
    [
        ({"k": 2}, ["m"], "the axis 'n' has no size"),
        ({"k": 2, "n": 3, "m": 4}, ["m"], "the axis 'm' is fixed to 4 and swept as well"),
        ({"k": 0, "n": 3}, ["m"], "the axis 'k' has size 0"),
        ({"k": 2, "n": 3, "z": 4}, ["m"], "there is no axis 'z'"),
    ],
)
def test_every_letter_has_exactly_one_extent_or_range(
    fixed: dict[str, int], swept: list[str], because: str
) -> None:
    check_letters(parse_contraction("mk,kn->mn"), {"k": 2, "n": 3}, ["m"])

    with pytest.raises(DescribeError) as refused:
        check_letters(parse_contraction("mk,kn->mn"), fixed, swept)

    assert refused.value.because == because


@pytest.mark.parametrize("text", MATMULS + OTHERS)
def test_numpy_computes_what_the_reference_says_and_a_matrix_product_goes_to_matmul(
    text: str,
) -> None:
    problem = make_problem(parse_contraction(text), SIZES, {})

    ways, product = Numpy().ways(problem), as_matmul(problem)

    assert [way.name for way in ways]
    for way in ways:
        assert problem.reference().mismatch(way.read(way.run())) == ""
    assert (product is not None) == (text in MATMULS)
    if product is not None:
        np.matmul(product.a, product.b, out=product.c)
        assert problem.reference().mismatch(product.out) == ""


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        ("mk,kn->mn", (False, False)),
        ("km,kn->mn", (True, False)),
        ("bij,bkj->bik", (False, True)),
        ("mk,nk->nm", None),
        ("mk,kn,nj->mj", None),
    ],
)
def test_offcut_takes_a_matrix_product_for_one_and_computes_every_contraction(
    text: str, turned: tuple[bool, bool] | None
) -> None:
    contraction = parse_contraction(text)
    problem = make_problem(contraction, SIZES, {})
    fixed = {letter: SIZES[letter] for letter in contraction.letters}

    computed = build(contraction, fixed, {}).compile({})(*problem.arrays.values())

    assert contraction.as_matmul == turned
    assert problem.reference().mismatch(computed) == ""


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 0.0])
def test_one_wrong_element_is_a_mismatch_that_names_it(wrong: float) -> None:
    problem = make_problem(parse_contraction("mk,kn->mn"), SIZES, {})
    reference = problem.reference()
    result = reference.value.astype(np.float32)
    assert reference.mismatch(result) == ""
    assert reference.mismatch(result.T) == "shape (3, 5), expected (5, 3)"

    result[3, 2] = wrong

    assert reference.mismatch(result).startswith(f"1 of 15 elements are off; [3, 2] is {wrong:.9g}")


@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("step", STEP_FUNCTIONS)
def test_a_function_of_an_epilogue_carries_the_error_of_its_argument(step: str, kind: str) -> None:
    """The bound is that of its greatest slope: no argument within `allowed` gives a result outside, and one of twice as much does."""
    value = np.linspace(-6, 6, 1201)
    allowed = np.full_like(value, 1e-3)
    result, error = STEP_FUNCTIONS[step].apply(value, allowed, kind)
    reached = np.zeros_like(value)
    for part in np.linspace(-1, 1, 9):
        moved = STEP_FUNCTIONS[step].call(value + part * allowed)
        reached = np.maximum(reached, np.abs(moved - result))
    assert (reached <= error + 1e-12).all()
    if kind in ("float32", "float64"):
        assert reached.max() >= 0.97 * error.max()


def test_an_error_beyond_the_bound_of_an_epilogue_is_seen() -> None:
    """One that the tolerance of the largest element lets pass."""
    problem = make_problem(parse_contraction("mk,kn->mn"), {"m": 5, "k": 7, "n": 9}, {})
    reference = replace(problem, epilogue=("gelu",)).reference()
    near = np.unravel_index(np.argmin(np.abs(reference.value)), reference.value.shape)
    result = reference.value.astype(np.float32)
    assert reference.mismatch(result) == ""
    result[near] += np.float32(5e-5 * np.abs(reference.value).max())
    assert reference.mismatch(result).startswith("1 of 45 elements are off; ")
