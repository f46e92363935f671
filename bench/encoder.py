"""The demo's sentence encoder on real text: offcut beside torch, onnxruntime and OpenVINO.

    python bench/encoder.py            # 300 sentences: ten minutes
    python bench/encoder.py --quick    # 12 sentences: two minutes

Everybody encodes all sentences in turn, round after round, each of them alone and many together,
with trained weights where they are installed; each embedding is compared with float64 before. The
sentences are every so many of the text, so lengths are as frequent as there. Then, where offcut's
time goes, by kernel, beside the limit of each.
"""

from __future__ import annotations

import json
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from offcut.experiment.cells import Options, read_options
from examples.sentences import tokens, weights
from examples.sentences.contenders import (
    KINDS,
    LEAST_COSINE,
    Standing,
    best_ratio,
    contenders,
    missing,
    standings,
)
from examples.sentences.encoder import Encoder
from examples.sentences.plain import PlainEncoder
from examples.sentences.report import kernel_table
from examples.sentences.run import evenly, read
from examples.sentences.shares import shares
from offcut.experiment.limits import Limits
from offcut.experiment.machine import describe

COUNT, QUICK_COUNT = 300, 12
ROUNDS, QUICK_ROUNDS = 11, 5
ASKED = {"float32": 1.5, "bfloat16": 2.0}
"""Speed over the best peer."""


def main() -> None:
    """Measure, print, write."""
    options = read_options(__doc__ or "", without=("slow", "cells", "budget"))
    console = Console()
    model = weights.load(0)
    tokenizer = tokens.stand_in if model.tokenizer is None else tokens.wordpiece(model.tokenizer)
    available = read(tokenizer)
    count = QUICK_COUNT if options.quick else COUNT
    sentences = [available[index].tokens for index in evenly(available, count)]
    reference = PlainEncoder(model.weights, np.float64)
    expected = np.array([reference.encode(given) for given in sentences])
    ours = [Encoder(model.weights, kind, options.threads) for kind in KINDS]
    found = standings(
        tuple(contenders(model.weights, ours, threads=options.threads)),
        sentences,
        expected,
        QUICK_ROUNDS if options.quick else ROUNDS,
        time.process_time if options.threads == 1 else time.perf_counter,
    )
    console.print(_table(found, len(sentences), sum(map(len, sentences))))
    figures: dict[str, object] = {}
    for kind, speed in ASKED.items():
        asked = f"asked ≥ {speed:g} × the best peer, cosine ≥ {LEAST_COSINE[kind]}"
        best = best_ratio(found, kind)
        if best is None:
            console.print(f"{kind}: nobody to compare with; {asked}")
            continue
        other, ratio = best
        name = f"{other.contender.name}, {other.contender.batch}"
        figures[kind] = {"best_peer": name, "ratio": [ratio.value, ratio.low, ratio.high]}
        console.print(
            f"{kind}: {ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f}) × {name}; {asked}"
        )
    limits = Limits(options.threads)
    for encoder in ours:
        console.print(kernel_table(encoder.kind, tuple(shares(encoder, sentences, limits))))
        seconds = sum(done.seconds for done in encoder.compiles)
        console.print(f"{encoder.kind}: {len(encoder.compiles)} compiles, {seconds:.1f} s")
    for line in missing():
        console.print(f"missing: {line}")
    console.print(f"weights: {model.source}", highlight=False, soft_wrap=True)
    console.print(f"machine: {describe()}", highlight=False, soft_wrap=True)
    _write(options, found, figures, len(sentences))
    raise SystemExit(0 if all(one.timing is not None for one in found) else 1)


def _table(found: tuple[Standing, ...], count: int, rows: int) -> Table:
    table = Table(title=f"{count} sentences, {rows} tokens")
    for name in ("", "sentences/s", "spread", "least cosine"):
        table.add_column(name, no_wrap=True)
    for one in found:
        rate = "WRONG" if one.timing is None else f"{count / one.timing.seconds:.1f}"
        spread = "–" if one.timing is None else f"{one.timing.spread:.0%}"
        table.add_row(str(one.contender), rate, spread, f"{one.cosine:.6f}")
    return table


def _write(
    options: Options, found: tuple[Standing, ...], figures: dict[str, object], count: int
) -> None:
    if options.json is None:
        return
    rates = {
        str(one.contender): count / one.timing.seconds for one in found if one.timing is not None
    }
    everything = {"bench": "encoder", "sentences_per_second": rates, "best": figures}
    options.json.write_text(json.dumps(everything | {"machine": str(describe())}, indent=1))


if __name__ == "__main__":
    main()
