"""Models of timm and transformers with random weights, for `zoo.toml`; each function gives a module, and its inputs by sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from networks import drawn, images
from torch import Tensor, nn

VOCABULARY = 1000

Model = tuple[nn.Module, Callable[..., tuple[Tensor, ...]]]


class First(nn.Module):
    """A model of transformers as a function of tensors: the first of its results.

    names  of the arguments, in order
    fixed  arguments that no call changes
    """

    def __init__(self, model: nn.Module, names: Sequence[str], fixed: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, one: Tensor, two: Tensor | None = None) -> Tensor:
        """Return the first result of one argument, or of two."""
        feed = dict(zip(self.names, (one, two), strict=False))
        result: Tensor = self.model(**feed, **self.fixed)[0]
        return result


def timm_model(name: str) -> Model:
    """Return a model of timm, of any number of images of 224×224."""
    import timm

    return drawn(lambda: timm.create_model(name, pretrained=False)), images


def ids(b: int, n: int) -> tuple[Tensor, ...]:
    """Return words by number."""
    return (torch.randint(0, VOCABULARY, (b, n)),)


INPUTS: dict[str, tuple[tuple[str, ...], Callable[..., tuple[Tensor, ...]]]] = {
    "ids": (("input_ids",), ids),
    "pairs": (("input_ids", "decoder_input_ids"), lambda b, n: (*ids(b, n), *ids(b, n))),
    "waves": (("input_values",), lambda b, n: (torch.randn(b, 200 * (n + 1)),)),
    "sounds": (("input_features",), lambda b: (torch.randn(b, 80, 3000),)),
    "images": (("pixel_values",), lambda b: images(b)),
}
"""Names of a model's arguments, and what gives them."""


def transformer(
    kind: str,
    config: str,
    inputs: str = "ids",
    cache: bool = True,
    options: Mapping[str, Any] | None = None,
) -> Model:
    """Return a model of transformers, a few layers of it.

    inputs  a key of `INPUTS`
    cache   False for one that would give its keys and values, too
    options of the configuration
    """
    import transformers

    names, given = INPUTS[inputs]
    fixed = {"return_dict": False, **({} if cache else {"use_cache": False})}

    def make() -> nn.Module:
        model = getattr(transformers, kind)(getattr(transformers, config)(**(options or {})))
        return First(model, names, fixed)

    return drawn(make), given
