from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from offcut.experiment.demo import dense, text, tokens, weights
from offcut.experiment.demo.dense import Call, Kernel, NumpyEngine, OffcutEngine, Shape
from offcut.experiment.demo.report import report
from offcut.experiment.demo.run import Options, compare, nearest, run
from offcut.experiment.demo.tokens import stand_in, tokenize
from offcut.experiment.demo.weights import Array, Linear


@dataclass(frozen=True)
class StandIn:
    """A compiled kernel's face over numpy's layer."""

    shape: Shape
    constants: Mapping[str, Array]

    def __call__(self, x: Array, *, out: Array) -> Array:
        layer = Linear(self.constants["W"], self.constants["bias"])
        return NumpyEngine().dense(layer, self.shape.gelu)(x, out)

    def with_constants(self, constants: Mapping[str, Array]) -> Kernel:
        return StandIn(self.shape, constants)


@pytest.fixture
def without_offcut(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_dense(shape: Shape, constants: Mapping[str, Array], strategy: str) -> Kernel:
        return StandIn(shape, constants)

    monkeypatch.setattr(dense, "compile_dense", compile_dense)


@pytest.mark.usefixtures("without_offcut")
def test_a_layer_shape_is_compiled_once_and_every_layer_keeps_its_own_weights() -> None:
    engine = OffcutEngine()
    layers = [
        Linear(np.full((3, 4), value, np.float32), np.zeros(4, np.float32)) for value in (1, 2)
    ]
    made = [engine.dense(layer, gelu=False) for layer in layers]
    engine.dense(layers[0], gelu=True)

    assert [done.shape for done in engine.compiles] == [Shape(3, 4, False), Shape(3, 4, True)]
    for value, layer in zip((1, 2), made, strict=True):
        out = np.empty((1, 4), np.float32)
        np.testing.assert_array_equal(layer(np.ones((1, 3), np.float32), out), 3 * value)


def test_a_comparison_sums_each_shape_and_takes_the_median_of_the_calls() -> None:
    a, b = Shape(2, 3, False), Shape(3, 2, True)
    ours = [Call(a, 5, 10), Call(b, 5, 100), Call(a, 1, 10), Call(a, 2, 10)]
    theirs = [Call(a, 5, 20), Call(b, 5, 50), Call(a, 1, 30), Call(a, 2, 70)]

    first, second = compare(ours, theirs)

    assert (first.shape, first.calls, first.ratio) == (a, 3, 3.0)
    assert (first.offcut, first.numpy) == pytest.approx((30e-9, 120e-9))
    assert first.gflop == pytest.approx(2 * 2 * 3 * 8 * 1e-9)
    assert (second.shape, second.calls, second.ratio) == (b, 1, 0.5)


def test_neighbours_come_nearest_first_and_never_twice() -> None:
    sentences = tokenize(
        ["far far far", "near near near", "near near near", "b b b", "c c c"], stand_in
    )
    embeddings = np.array([[-1, 0], [1, 0], [1, 0], [0.6, 0.8], [0, 1]], np.float32)

    found = nearest(np.array([1, 0], np.float32), embeddings, sentences)

    assert [near.text for near in found] == ["near near near", "b b b", "c c c"]
    assert [near.cosine for near in found] == pytest.approx([1, 0.6, 0])


@pytest.mark.usefixtures("without_offcut")
def test_the_demo_runs_on_random_weights_and_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the picture")
    monkeypatch.setattr(weights, "PACKAGE", "no-such-package-of-weights")
    monkeypatch.setattr(weights, "LAYERS", 1)
    monkeypatch.setattr(weights, "VOCABULARY", 200)
    monkeypatch.setattr(tokens, "VOCABULARY", 200)
    monkeypatch.setattr(text, "reference", lambda: ("word " * 600 + ". A b c d. E f g. B a c d.",))
    file = StringIO()
    console = Console(file=file, width=100)

    result = run(Options(out=tmp_path, checked=2, picture_seconds=0.0), console)
    report(result, console, "one thread")

    assert [len(sentence) for sentence in result.sentences] == [512, 7, 6, 7]
    assert (result.truncated, result.distinct, result.difference.sentences) == (1, 4, 2)
    assert (len(result.compiles), result.compiles_later) == (3, 0)
    assert [row.calls for row in result.comparisons] == [16, 4, 4]
    assert result.difference.offcut < 1e-5
    assert result.picture.exists()
    printed = file.getvalue()
    assert "random, seed 0, in the shapes of all-MiniLM-L6-v2" in printed
    assert "3 for 3 layer shapes" in printed
    assert "shared words at best" in printed
