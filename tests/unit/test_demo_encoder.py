from typing import Any

import numpy as np
import pytest

from offcut.experiment.demo import tokens, weights
from offcut.experiment.demo.dense import NumpyEngine
from offcut.experiment.demo.encoder import Encoder
from offcut.experiment.demo.weights import Norm, Weights


@pytest.fixture(scope="module")
def model() -> Weights:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "VOCABULARY", 50)
        patch.setattr(weights, "LAYERS", 2)
        return weights.random(0)


def ids(count: int) -> Any:
    return np.random.default_rng(count).integers(0, 50, count)


@pytest.mark.parametrize("count", [1, 5, 33, 512])
def test_an_embedding_has_length_one_and_float32_agrees_with_float64(
    model: Weights, count: int
) -> None:
    single = Encoder(model, NumpyEngine()).encode(ids(count))
    double = Encoder(model, NumpyEngine(), np.float64).encode(ids(count))

    assert (str(single.dtype), str(double.dtype)) == ("float32", "float64")
    assert np.linalg.norm(double) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(single, double, atol=1e-5)


def test_a_sentence_does_not_depend_on_the_one_before(model: Weights) -> None:
    encoder = Encoder(model, NumpyEngine())
    before = encoder.encode(ids(9))
    encoder.encode(ids(200))

    np.testing.assert_array_equal(encoder.encode(ids(9)), before)


def test_the_encoder_is_torchs(model: Weights) -> None:
    torch = pytest.importorskip("torch", reason="torch, the independent answer, is not installed")
    x = model.words[ids(21)] + model.positions[:21] + model.kind

    def tensor(array: Any) -> Any:
        return torch.from_numpy(np.array(array))

    def norm(y: Any, of: Norm) -> Any:
        return torch.nn.functional.layer_norm(y, (384,), tensor(of.gain), tensor(of.bias), 1e-12)

    y = norm(tensor(x)[None], model.norm)
    for layer in model.layers:
        peer = torch.nn.TransformerEncoderLayer(
            384, 12, 1536, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
        ).eval()
        inputs = (layer.query, layer.key, layer.value)
        named = {
            "self_attn.in_proj_weight": np.vstack([linear.weight.T for linear in inputs]),
            "self_attn.in_proj_bias": np.concatenate([linear.bias for linear in inputs]),
        }
        for name, linear in (
            ("self_attn.out_proj", layer.attention),
            ("linear1", layer.feed_in),
            ("linear2", layer.feed_out),
        ):
            named |= {f"{name}.weight": linear.weight.T, f"{name}.bias": linear.bias}
        for name, of in (("norm1", layer.attention_norm), ("norm2", layer.feed_norm)):
            named |= {f"{name}.weight": of.gain, f"{name}.bias": of.bias}
        peer.load_state_dict({name: tensor(array) for name, array in named.items()})
        with torch.inference_mode():
            y = peer(y)
    mean = y[0].mean(dim=0).numpy()

    found = Encoder(model, NumpyEngine()).encode(ids(21))
    np.testing.assert_allclose(found, mean / np.linalg.norm(mean), atol=1e-5)


# The similarities that the documentation of sentence-transformers prints for this model.
PUBLISHED = {
    ("The weather is lovely today.", "It's so sunny outside!"): 0.6660,
    ("The weather is lovely today.", "He drove to the stadium."): 0.1046,
    ("It's so sunny outside!", "He drove to the stadium."): 0.1411,
}


def test_the_trained_encoder_gives_the_published_similarities() -> None:
    model = weights.load(seed=0)
    if model.tokenizer is None:
        pytest.skip(model.source)
    encoder, tokenizer = Encoder(model.weights, NumpyEngine()), tokens.wordpiece(model.tokenizer)

    for pair, cosine in PUBLISHED.items():
        one, other = (encoder.encode(found.tokens) for found in tokens.tokenize(pair, tokenizer))
        assert float(one @ other) == pytest.approx(cosine, abs=1e-4)
