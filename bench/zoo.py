"""Models of timm and transformers at real widths, by both doors: offcut against torch eager and onnxruntime.

    python bench/zoo.py                                 # every model: an hour and more
    python bench/zoo.py --quick                         # a few, one image and three: some minutes
    python bench/zoo.py --cells 'mixnet|edgenext'       # those with this regular expression

float32, random weights, one image size. What `models.py` asks of a model that somebody chose is asked here of those that
nobody looked at: a cell far below the others is a kernel that is missing, not one that wants tuning. Needs timm and
transformers; what is not installed, or cannot be exported, is left out with the reason.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models import (
    Case,
    Inputs,
    Taken,
    Task,
    by_offcut,
    by_onnxruntime,
    by_torch,
    images,
    task,
    tokens,
)

import offcut as oc
from offcut.experiment.bench import Group, Options, read_options, run
from offcut.experiment.peers import Way
from offcut.experiment.table import Asked, Line, Row
from offcut.experiment.timing import paired_ratio

COUNTS = (1, 2, 3, 8)
QUICK = ("resnext50_32x4d", "mixnet_s", "edgenext_x_small", "coat_lite_tiny", "t5")

OVER_TORCH, OVER_ONNXRUNTIME = 1.2, 0.9
"""What is asked of each door, over the peer that reads the same."""

CLOSE = 1e-3
"""Sixty layers of random weights multiply what rounds: torch's own error is told beside ours."""

BY_TORCH, BY_ONNX = "from_torch", "from_onnx"
DOORS = {BY_TORCH: ("torch", OVER_TORCH), BY_ONNX: ("onnxruntime", OVER_ONNXRUNTIME)}

TIMM = (
    *("resnext50_32x4d", "regnety_002", "convnext_atto", "poolformer_s12", "efficientnet_b0"),
    *("mobilenetv3_small_100", "densenet121", "ghostnet_100", "swin_tiny_patch4_window7_224"),
    *("repvgg_a0", "inception_v3", "levit_128s", "hrnet_w18_small", "xcit_nano_12_p16_224"),
    *("coat_lite_tiny", "fastvit_t8", "efficientformer_l1", "edgenext_x_small", "mobilevit_xs"),
    *("mobilevitv2_050", "mixnet_s", "tf_efficientnetv2_b0", "vgg11", "res2net50_26w_4s", "dla34"),
    *("dpn68", "nf_resnet26", "cspresnet50", "mobilenetv4_conv_small", "efficientvit_b0"),
    *("pvt_v2_b0", "twins_svt_small", "convmixer_768_32", "gmlp_ti16_224", "resnest14d"),
    *("skresnet18", "mobileone_s0", "inception_next_atto", "davit_tiny"),
)
"""Names of timm, whose images are 224 by 224."""


@dataclass
class Door(Taken):
    """A contender that may not take a model.

    title    of the model
    told     a line for each contender: its error against float64, or why it has none; shared
    refused  whether it did not take the model
    """

    title: str = ""
    told: list[Line] = field(default_factory=list)
    refused: bool = False

    def ways(self, task: Task) -> tuple[Way, ...]:
        """The one way, or none."""
        if self.refused:
            return ()
        known = bool(self.seconds)
        try:
            (way,) = super().ways(task)
            if not known:
                exact = task.reference().value
                off = np.abs(way.read(way.run()).astype(np.float64) - exact).max()
                seconds = next(iter(self.seconds.values()))
                self.tell(f"{off / np.abs(exact).max():.0e} off", self.left(task), seconds)
        except Exception as error:  # of another library, of any kind: the others go on
            self.refused = True
            self.tell("not taken", why(error))
            return ()
        return (way,)

    def left(self, task: Task) -> str:
        """What torch runs of it, in words."""
        return str(task.case.taken.report).splitlines()[0] if self.name == BY_TORCH else ""

    def tell(self, what: str, where: str, seconds: float = 0.0) -> None:
        """Add a line."""
        cold = f", first result after {seconds:.1f} s" if seconds else ""
        self.told.append((f"{self.title}, {self.name}", "", what + cold, where))


def why(error: Exception) -> str:
    """The first line of an error."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def by_file(threads: int, case: Case) -> Callable[[Inputs], Callable[[], Any]]:
    """All from the file that onnxruntime reads."""
    model = oc.from_onnx(case.file, threads=threads)

    def bound(given: Inputs) -> Callable[[], Any]:
        feed = dict(zip(case.free, (one.numpy() for one in given), strict=True))
        return lambda: next(iter(model(feed).values()))

    return bound


class First(torch.nn.Module):
    """A model of transformers as a function of tensors: the first of its results.

    names  of the arguments, in order
    fixed  arguments that no call changes
    """

    def __init__(self, model: torch.nn.Module, names: Sequence[str], **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, one: torch.Tensor, two: torch.Tensor | None = None) -> torch.Tensor:
        """Of one argument, or of two."""
        given = dict(zip(self.names, (one, two), strict=False))
        result: torch.Tensor = self.model(**given, **self.fixed)[0]
        return result


def of_timm(name: str) -> Case:
    """A model of timm, of any number of images."""
    import timm

    by_count = {f"n={n}": (n,) for n in COUNTS}
    return Case(
        lambda: timm.create_model(name, pretrained=False),
        OVER_TORCH,
        images,
        by_count,
        {"x": {0: "n"}},
        close=CLOSE,
    )


def of_transformers() -> dict[str, Callable[[], Case]]:
    """Models of transformers, a few layers each, by name."""
    words = {f"b={b}, n={n}": (b, n) for b, n in ((1, 64), (2, 33), (3, 20), (8, 16), (1, 1))}
    vocabulary = 1000

    def ids(batch: int, length: int) -> Inputs:
        return tuple(one % vocabulary for one in tokens(batch, length))

    def pairs(batch: int, length: int) -> Inputs:
        return *ids(batch, length), *ids(batch, length)

    def waves(batch: int, length: int) -> Inputs:
        return (torch.randn(batch, 200 * (length + 1)),)

    def sounds(batch: int) -> Inputs:
        return (torch.randn(batch, 80, 3000),)

    def case(
        kind: str,
        config: str,
        given: Callable[..., Inputs] = ids,
        names: Sequence[str] = ("input_ids",),
        cells: Mapping[str, tuple[int, ...]] = words,
        traced: bool = False,
        fixed: Mapping[str, Any] | None = None,
        **of: Any,
    ) -> Callable[[], Case]:
        def made() -> Case:
            import transformers

            def make() -> torch.nn.Module:
                model = getattr(transformers, kind)(getattr(transformers, config)(**of))
                return First(model, names, return_dict=False, **(fixed or {}))

            free = {
                name: {0: "b", **({1: f"n_{name}"} if cells is words else {})} for name in names
            }
            return Case(make, OVER_TORCH, given, cells, free, traced, CLOSE)

        return made

    batches = {f"b={b}": (b,) for b in COUNTS}
    decoder: dict[str, Any] = {
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": vocabulary,
    }
    encoder: dict[str, Any] = {
        "hidden_size": 384,
        "intermediate_size": 1536,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "vocab_size": vocabulary,
    }
    plain = {"use_cache": False}
    return {
        "llama": case("LlamaModel", "LlamaConfig", traced=True, fixed=plain, **decoder),
        "qwen2": case("Qwen2Model", "Qwen2Config", traced=True, fixed=plain, **decoder),
        "gemma2": case(
            "Gemma2Model",
            "Gemma2Config",
            traced=True,
            fixed=plain,
            head_dim=64,
            sliding_window=32,
            **decoder,
        ),
        "qwen2-moe": case(
            "Qwen2MoeModel",
            "Qwen2MoeConfig",
            traced=True,
            fixed=plain,
            num_experts=8,
            moe_intermediate_size=256,
            shared_expert_intermediate_size=512,
            **decoder,
        ),
        "mamba": case(
            "MambaModel",
            "MambaConfig",
            fixed=plain,
            hidden_size=256,
            num_hidden_layers=3,
            vocab_size=vocabulary,
        ),
        "t5": case(
            "T5EncoderModel",
            "T5Config",
            d_model=512,
            d_ff=1024,
            num_layers=4,
            num_heads=8,
            vocab_size=vocabulary,
            feed_forward_proj="gated-gelu",
        ),
        "bart": case(
            "BartModel",
            "BartConfig",
            given=pairs,
            names=("input_ids", "decoder_input_ids"),
            fixed=plain,
            d_model=512,
            encoder_layers=3,
            decoder_layers=3,
            encoder_attention_heads=8,
            decoder_attention_heads=8,
            encoder_ffn_dim=1024,
            decoder_ffn_dim=1024,
            vocab_size=vocabulary,
        ),
        "deberta": case(
            "DebertaV2Model",
            "DebertaV2Config",
            relative_attention=True,
            pos_att_type=["p2c", "c2p"],
            **encoder,
        ),
        "electra": case("ElectraModel", "ElectraConfig", embedding_size=128, **encoder),
        "modernbert": case(
            "ModernBertModel", "ModernBertConfig", traced=True, pad_token_id=0, **encoder
        ),
        "wav2vec2": case(
            "Wav2Vec2Model",
            "Wav2Vec2Config",
            given=waves,
            names=("input_values",),
            conv_dim=(256,) * 7,
            num_conv_pos_embeddings=32,
            num_conv_pos_embedding_groups=8,
            **encoder,
        ),
        "whisper": case(
            "WhisperForAudioClassification",
            "WhisperConfig",
            given=sounds,
            names=("input_features",),
            cells=batches,
            d_model=384,
            encoder_layers=2,
            encoder_attention_heads=6,
            encoder_ffn_dim=1536,
        ),
        "clip": case(
            "CLIPVisionModel",
            "CLIPVisionConfig",
            given=images,
            names=("pixel_values",),
            cells=batches,
            hidden_size=384,
            intermediate_size=1536,
            num_hidden_layers=4,
            num_attention_heads=6,
        ),
    }


def cases() -> dict[str, Callable[[], Case]]:
    """What makes each model, by its name."""
    return {**{name: partial(of_timm, name) for name in TIMM}, **of_transformers()}


def groups(options: Options, told: list[Line]) -> Iterator[Group]:
    """A table for each model that is chosen and can be made; `told` is told why one is not."""
    every = cases()
    for title in QUICK if options.quick else every:
        package = "timm" if title in TIMM else "transformers"
        if importlib.util.find_spec(package) is None:
            told.append((title, "", "not measured", f"{package} is not installed"))
            continue
        case = every[title]()
        cells = dict(list(case.cells.items())[:3:2]) if options.quick else case.cells
        if not any(re.search(options.cells, f"{title}: {label}") for label in cells):
            continue
        try:
            _ = case.model
        except Exception as error:  # of another library, of any kind
            told.append((title, "", "not measured", why(error)))
            continue
        yield Group(title, {label: partial(task, case, sizes) for label, sizes in cells.items()})


def doors(row: Row) -> Iterator[tuple[str, float]]:
    """For each door by which a row was measured, time of its peer over its own."""
    timed = {cell.contender: cell.timing for cell in row.cells}
    for door, (peer, _) in DOORS.items():
        own, other = timed.get(door), timed.get(peer)
        if own is not None and other is not None:
            yield door, paired_ratio(other, own).value


def summary(rows: Sequence[Row]) -> Iterator[Line]:
    """The geometric mean of each door over its peer, and every cell that falls short, the worst first."""
    found = [(door, ratio, row.where) for row in rows for door, ratio in doors(row)]
    for door, (peer, asked) in DOORS.items():
        ratios = [(ratio, where) for one, ratio, where in found if one == door]
        if ratios:
            mean = float(np.exp(np.mean(np.log([ratio for ratio, _ in ratios]))))
            yield f"{door} over {peer}", "", f"{mean:.2f}", f"{len(ratios)} cells"
        for ratio, where in sorted(ratios):
            if ratio < asked:
                yield f"{door} over {peer}", f"≥ {asked:g}", f"{ratio:.2f}", where


def main() -> None:
    """Measure, print, write."""
    options: Options = read_options(__doc__ or "", without=("slow",))
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(False)
    torch.set_num_threads(options.threads)
    ways = {BY_TORCH: by_offcut, BY_ONNX: by_file, "torch": by_torch, "onnxruntime": by_onnxruntime}
    told: list[Line] = []

    def own(group: Group) -> list[Door]:
        return [
            Door(name, partial(prepare, options.threads), title=group.title, told=told)
            for name, prepare in ways.items()
        ]

    status, _ = run(
        Path(__file__).stem,
        groups(options, told),
        Asked(),
        options,
        own=own,
        rivals=2,
        peers=(),
        more=lambda rows: (*told, *summary(rows)),
    )
    raise SystemExit(status)


if __name__ == "__main__":
    main()
