import importlib.util
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from examples.sentences import contenders, weights
from examples.sentences.batches import in_batches
from examples.sentences.contenders import (
    Contender,
    Standing,
    best_ratio,
    missing,
    standings,
)
from examples.sentences.plain import PlainEncoder
from examples.sentences.tokens import Tokens
from examples.sentences.weights import HIDDEN, Array, Weights
from offcut.experiment.timing import Timing
from tests.agree import agree, of_peer

LENGTHS = [9, 5, 40, 5, 17, 300, 1]


def sentences() -> list[Tokens]:
    return [np.random.default_rng(n).integers(0, 50, length) for n, length in enumerate(LENGTHS)]


def mean(given: Sequence[Tokens]) -> Array:
    """A stand-in for an encoder: each embedding is a function of its sentence alone."""
    lengths = [len(one) for one in given]
    assert lengths == sorted(lengths)
    return np.array([np.full(HIDDEN, one.mean(), np.float32) for one in given])


@pytest.mark.parametrize("rows", [1, 12, 1000])
def test_batches_give_the_embeddings_in_the_order_of_the_sentences(rows: int) -> None:
    found = in_batches(mean, rows)(sentences())

    agree(found[:, 0], np.array([one.mean() for one in sentences()], "float64"))


def constant(value: Array) -> Callable[[Sequence[Tokens]], Array]:
    return lambda given: np.repeat(value[None], len(given), axis=0)


def test_who_is_wrong_is_not_measured_and_everybody_else_is_as_often_as_asked() -> None:
    right, wrong = np.zeros((2, HIDDEN), np.float32)
    right[0] = wrong[1] = 1
    asked = [
        Contender("float32", "offcut", "alone", constant(right)),
        Contender("float32", "other", "alone", constant(wrong)),
        Contender("float32", "third", "alone", constant(right)),
    ]
    ticks = iter(range(1000))

    found = standings(asked, sentences(), constant(right)(sentences()), 4, lambda: next(ticks))

    assert [one.cosine for one in found] == [1, 0, 1]
    assert [one.timing is None for one in found] == [False, True, False]
    assert [len(one.timing.samples) for one in found if one.timing is not None] == [4, 4]
    best = best_ratio(found, "float32")
    assert best is not None
    assert (best[0].contender.name, best[1].value) == ("third", 1.0)
    assert best_ratio(found, "bfloat16") is None


def test_the_best_peer_is_the_fastest_that_is_right() -> None:
    def standing(name: str, seconds: float | None) -> Standing:
        timing = None if seconds is None else Timing((seconds,), 1)
        return Standing(Contender("float32", name, "alone", mean), 1.0, timing, 1)

    found = [standing("offcut", 2.0), standing("numpy", 1.0), standing("a", 6.0)]
    found += [standing("b", 3.0), standing("c", None), standing("offcut", 1.5)]

    best = best_ratio(found, "float32")

    assert best is not None
    assert (best[0].contender.name, best[1].value) == ("b", 2.0)


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "PACKAGES", {"numpy": ("numpy",), "x": ("numpy", "no_such")})

    assert missing() == ("x (no_such not installed)",)


@pytest.fixture(scope="module")
def model() -> Weights:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "VOCABULARY", 50)
        patch.setattr(weights, "LAYERS", 1)
        return weights.random(0)


@pytest.mark.every(2)
@pytest.mark.parametrize("library", contenders.PACKAGES)
def test_libraries_encode_what_numpy_does(library: str, model: Weights) -> None:
    lacking = [n for n in contenders.PACKAGES[library] if importlib.util.find_spec(n) is None]
    if lacking:
        pytest.skip(f"not installed: {', '.join(lacking)}")
    plain = PlainEncoder(model, np.float64)
    expected = np.array([plain.encode(one) for one in sentences()])

    found = list(contenders.by_library(library, model, ("float32",), 1))

    assert len(found) >= 2
    for one in found:
        agree(one.encode_all(sentences()), of_peer(expected), what=str(one))
