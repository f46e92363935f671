"""The models of `models.toml` in plain torch, with random weights; each function gives a module, and its inputs by sizes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def drawn(make: Callable[[], nn.Module]) -> nn.Module:
    """A model with the same weights each time, whose layers keep the size of what they are given."""
    torch.manual_seed(0)
    model = make().eval().requires_grad_(False)
    for one in model.modules():
        if isinstance(one, nn.Conv2d):
            nn.init.kaiming_normal_(one.weight)
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.normal_(0, 0.1)
            one.running_var.uniform_(0.5, 1.5)
    return model


def convolved(c: int, o: int, window: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution that keeps the image, and a batch norm."""
    conv = nn.Conv2d(c, o, window, stride, window // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(o))


class Residual(nn.Module):
    """The basic block of a residual network."""

    def __init__(self, c: int, o: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = convolved(c, o, 3, stride), convolved(o, o, 3)
        plain = c == o and stride == 1
        self.short = nn.Identity() if plain else convolved(c, o, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Two convolutions beside a shortcut."""
        return F.relu(self.two(F.relu(self.one(x))) + self.short(x))


class ResNet18(nn.Module):
    """Of images to 1000 classes. Source: He et al., CVPR 2016."""

    def __init__(self) -> None:
        super().__init__()
        widths = (64, 64, 128, 256, 512)
        self.stem = convolved(3, 64, 7, 2)
        blocks = [
            block
            for c, o in pairwise(widths)
            for block in (Residual(c, o, 1 if c == o else 2), Residual(o, o, 1))
        ]
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        x = self.blocks(F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Inverted(nn.Module):
    """The block of MobileNetV2: wide, by channel, narrow."""

    def __init__(self, c: int, o: int, stride: int, widen: int) -> None:
        super().__init__()
        wide = c * widen
        first = [convolved(c, wide, 1), nn.ReLU6()] if widen > 1 else []
        middle = [convolved(wide, wide, 3, stride, wide), nn.ReLU6()]
        self.layers = nn.Sequential(*first, *middle, convolved(wide, o, 1))
        self.kept = c == o and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        """Beside a shortcut where shapes are equal."""
        return x + self.layers(x) if self.kept else self.layers(x)


class MobileNetV2(nn.Module):
    """Of images to 1000 classes. Source: Sandler et al., CVPR 2018, table 2."""

    ROWS = (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    )

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [convolved(3, 32, 3, 2), nn.ReLU6()]
        c = 32
        for widen, o, count, stride in self.ROWS:
            for number in range(count):
                layers.append(Inverted(c, o, 1 if number else stride, widen))
                c = o
        layers += [convolved(c, 1280, 1), nn.ReLU6()]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        return self.head(F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))


class Attention(nn.Module):
    """Of several heads, over itself; with a past it gives the keys and values to keep."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.depth = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by head."""
        b, n, _ = x.shape
        apart = self.qkv(x).view(b, n, 3, self.heads, self.depth)
        q, k, v = apart.permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def joined(self, x: Tensor) -> Tensor:
        """Heads side by side, projected."""
        b, _, n, _ = x.shape
        return self.out(x.transpose(1, 2).reshape(b, n, self.heads * self.depth))

    def forward(self, x: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Every token's mean of the others."""
        q, k, v = self.split(x)
        return self.joined(F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal))

    def after(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """One token more, after keys and values of shape (2, b, heads, n, depth)."""
        q, k, v = self.split(x)
        kept = torch.cat([past, torch.stack([k, v])], 3)
        return self.joined(F.scaled_dot_product_attention(q, kept[0], kept[1])), kept


class Layer(nn.Module):
    """A transformer's; the norms come first, or last as in BERT."""

    def __init__(self, width: int, heads: int, first: bool, activation: str = "none") -> None:
        super().__init__()
        self.attention, self.first, self.activation = Attention(width, heads), first, activation
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def feed(self, x: Tensor) -> Tensor:
        """The feed-forward net."""
        return self.down(F.gelu(self.up(x), approximate=self.activation))

    def forward(self, x: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Attention, then the feed-forward net, each beside a shortcut."""
        if self.first:
            x = x + self.attention(self.norms[0](x), mask, causal)
            return x + self.feed(self.norms[1](x))
        x = self.norms[0](x + self.attention(x, mask, causal))
        return self.norms[1](x + self.feed(x))

    def after(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """One token more."""
        mixed, kept = self.attention.after(self.norms[0](x), past)
        x = x + mixed
        return x + self.feed(self.norms[1](x)), kept


class VitS32(nn.Module):
    """Of images of 224² to 1000 classes: 49 patches and a class token. Source: Dosovitskiy et al., ICLR 2021."""

    def __init__(self, width: int = 384) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 32, 32)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 50, width))
        self.layers = nn.Sequential(*(Layer(width, 6, True) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class Gpt2(nn.Module):
    """GPT-2 small: tokens to scores of the next. Source: Radford et al., 2019."""

    def __init__(self, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50257, width), nn.Embedding(1024, width)
        self.layers = nn.ModuleList([Layer(width, 12, True, "tanh") for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores for the last token."""
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x, causal=True)
        return self.norm(x[:, -1]) @ self.words.weight.t()


class Gpt2Step(nn.Module):
    """One token of GPT-2, after the keys and values of those before: scores, and what is kept."""

    def __init__(self, model: Gpt2) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """`past` is (layers, 2, b, heads, n, depth)."""
        model, kept = self.model, []
        x = model.words(ids) + model.places(torch.arange(past.shape[4], past.shape[4] + 1))
        for number, layer in enumerate(model.layers):
            x, own = layer.after(x, past[number])
            kept.append(own)
        return model.norm(x[:, -1]) @ model.words.weight.t(), torch.stack(kept)


class Bert(nn.Module):
    """A sentence encoder of BERT's base size: the mean of words that are there. Source: Devlin et al., 2019."""

    def __init__(self, width: int = 768) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([Layer(width, 12, False) for _ in range(12)])

    def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
        """`keep` is (b, n), 0 where a sentence is over."""
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        mask = (1.0 - keep)[:, None, None, :] * -1e9
        for layer in self.layers:
            x = layer(x, mask)
        weight = keep[:, :, None]
        return (x * weight).sum(1) / weight.sum(1)


class Mixing(nn.Module):
    """A layer of a mixer: over patches, then over channels."""

    def __init__(self, width: int, patches: int, tokens: int, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.over = nn.Sequential(nn.Linear(patches, tokens), nn.GELU(), nn.Linear(tokens, patches))
        self.along = nn.Sequential(
            nn.Linear(width, channels), nn.GELU(), nn.Linear(channels, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Each beside a shortcut."""
        x = x + self.over(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norms[1](x))


class MixerS32(nn.Module):
    """Of images of 224² to 1000 classes. Source: Tolstikhin et al., NeurIPS 2021, table 1."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 32, 32)
        self.layers = nn.Sequential(*(Mixing(width, 49, 256, 2048) for _ in range(8)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of classes."""
        x = self.layers(self.patches(x).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


class Lstm(nn.Module):
    """The state after 16 steps of a recurrence, 128 to 256. Source: Hochreiter & Schmidhuber, 1997."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(128, 256, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """The last output."""
        return self.cells(x)[0][:, -1]


Inputs = tuple[Tensor, ...]
Model = tuple[nn.Module, Callable[..., Inputs]]
"""A module, and what gives the tensors of a call of these sizes."""


def images(n: int, h: int = 224, w: int = 224) -> Inputs:
    """Return standard normal images."""
    return (torch.randn(n, 3, h, w),)


def tokens(b: int, n: int) -> Inputs:
    """Return words by number."""
    return (torch.randint(0, 30000, (b, n)),)


def sentences(b: int, n: int) -> Inputs:
    """Return words by number, and where each sentence is over: lengths from 1 to `n`."""
    ends = torch.linspace(n, max(n // 3, 1), b).long()
    return *tokens(b, n), (torch.arange(n) < ends[:, None]).float()


def resnet18() -> Model:
    """Return ResNet-18, of any images."""
    return drawn(ResNet18), images


def mobilenet_v2() -> Model:
    """Return MobileNetV2, of any images."""
    return drawn(MobileNetV2), images


def vit_s32() -> Model:
    """Return a vision transformer, of any number of images."""
    return drawn(VitS32), images


def mixer_s32() -> Model:
    """Return a mixer, of any number of images."""
    return drawn(MixerS32), images


def gpt2() -> Model:
    """Return GPT-2, of any batch and length."""
    return drawn(Gpt2), tokens


def gpt2_step() -> Model:
    """Return GPT-2's next token, after any past of any batch."""

    def steps(b: int, n: int) -> Inputs:
        return *tokens(b, 1), torch.randn(12, 2, b, 12, n, 64)

    return drawn(lambda: Gpt2Step(Gpt2())), steps


def bert(width: int = 768) -> Model:
    """Return a sentence encoder, of any batch and length."""
    return drawn(lambda: Bert(width)), sentences


def lstm() -> Model:
    """Return a recurrent layer, of any batch."""
    return drawn(Lstm), lambda n: (torch.randn(n, 16, 128),)


def layers(*widths: int) -> Model:
    """Return dense layers with relu, of these widths, of any batch."""

    def build() -> nn.Module:
        pairs = (one for a, b in pairwise(widths) for one in (nn.Linear(a, b), nn.ReLU()))
        return nn.Sequential(*pairs)

    def rows(n: int) -> Inputs:
        return (torch.randn(n, widths[0]),)

    return drawn(build), rows
