from typing import Any

import numpy as np
import pytest
from conftest import slow

from examples.sentences import tokens, weights
from examples.sentences.encoder import Encoder
from examples.sentences.plain import PlainEncoder
from examples.sentences.weights import Array, Norm, Weights
from offcut.errors import CallError, OffcutError
from tests.agree import agree, nearly, of_peer

COSINE = {"float32": 0.9999, "bfloat16": 0.999}

# One token, the ends of tiles and what is beside them, lengths that come twice, and the longest.
LENGTHS = [33, 1, 5, 14, 13, 5, 64, 200, 15, 5, 63, 512]


@pytest.fixture(scope="module")
def model() -> Weights:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "VOCABULARY", 50)
        patch.setattr(weights, "LAYERS", 2)
        return weights.random(0)


@pytest.fixture(scope="module", params=["float32", slow("bfloat16")])
def encoder(model: Weights, request: pytest.FixtureRequest) -> Encoder:
    return Encoder(model, request.param)


def ids(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 50, count)


def exact(model: Weights, count: int, seed: int = 0) -> Array:
    return PlainEncoder(model, np.float64).encode(ids(count, seed))


@pytest.mark.every(4)
@pytest.mark.parametrize("count", [1, 5, 33, 512])
def test_numpys_embedding_has_length_one_and_float32_agrees_with_float64(
    model: Weights, count: int
) -> None:
    single, double = PlainEncoder(model).encode(ids(count)), exact(model, count)

    assert (str(single.dtype), str(double.dtype)) == ("float32", "float64")
    assert np.linalg.norm(double) == nearly(1, abs=1e-12)
    agree(single, of_peer(double))


@pytest.mark.slow
def test_every_length_agrees_with_float64(encoder: Encoder, model: Weights) -> None:
    for count in LENGTHS:
        found = encoder.encode(ids(count))

        assert (found.shape, str(found.dtype)) == ((384,), "float32")
        assert np.linalg.norm(found) == nearly(1, abs=1e-6)
        assert found @ exact(model, count) >= COSINE[encoder.kind]
        if encoder.kind == "float32":
            agree(found, of_peer(exact(model, count)))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 40, 256, 5000])
def test_an_embedding_has_the_same_bits_alone_and_in_any_batch(encoder: Encoder, rows: int) -> None:
    sentences = [ids(count, seed) for seed, count in enumerate(LENGTHS)]

    together = encoder.encode_all(sentences, rows)

    assert together.shape == (len(LENGTHS), 384)
    for found, sentence in zip(together, sentences, strict=True):
        np.testing.assert_array_equal(found, encoder.encode(sentence))


def test_a_sentence_does_not_depend_on_the_one_before(encoder: Encoder) -> None:
    before = encoder.encode(ids(9))
    encoder.encode(ids(200))

    np.testing.assert_array_equal(encoder.encode(ids(9)), before)


def test_seven_kernels_serve_all_layers_and_lengths(encoder: Encoder) -> None:
    for count in LENGTHS:
        encoder.encode(ids(count))

    assert [done.kernel for done in encoder.compiles] == [
        *("embed", "project", "settle 384", "widen", "settle 1536", "attend", "pool")
    ]


def test_calls_are_noted_in_order_with_the_flop_of_their_products(encoder: Encoder) -> None:
    with encoder.noting() as calls:
        encoder.encode_all([ids(3), ids(7), ids(3)])
    encoder.encode(ids(4))  # outside: not noted

    layer = ["project", "attend", "attend", "settle 384", "widen", "settle 1536"]
    assert [call.kernel for call in calls] == ["embed", *layer, *layer, "pool", "pool"]
    assert [call.flop for call in calls[:7]] == [
        *(0, 2 * 13 * 384 * 1152, 4 * 2 * 9 * 384, 4 * 49 * 384),
        *(2 * 13 * 384 * 384, 2 * 13 * 384 * 1536, 2 * 13 * 1536 * 384),
    ]
    assert all(call.moved > 0 for call in calls)


def test_no_sentence_gives_no_embedding(encoder: Encoder) -> None:
    assert encoder.encode_all([]).shape == (0, 384)


def test_a_sentence_without_tokens_or_with_too_many_is_refused(encoder: Encoder) -> None:
    for count in (0, 513):
        with pytest.raises(OffcutError) as refused:
            encoder.encode(ids(count))

        assert (
            str(refused.value)
            == f"""\
encode: cannot encode sentences of {count} tokens
  because  a sentence has 1 to 512 tokens, a batch at most 1024"""
        )


def test_a_token_outside_the_table_is_refused(encoder: Encoder) -> None:
    with pytest.raises(CallError, match="embed: cannot run on these arrays"):
        encoder.encode(np.array([3, 50, 4]))


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

    found = PlainEncoder(model).encode(ids(21))
    agree(found, of_peer(mean / np.linalg.norm(mean)))


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
    encoder, tokenizer = Encoder(model.weights), tokens.wordpiece(model.tokenizer)

    for pair, cosine in PUBLISHED.items():
        one, other = (encoder.encode(found.tokens) for found in tokens.tokenize(pair, tokenizer))
        assert float(one @ other) == nearly(cosine, abs=1e-4)
