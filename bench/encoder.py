"""The sentence encoder of `examples` on real text: offcut beside torch, onnxruntime and OpenVINO.

    python bench/encoder.py            # 300 sentences: ten minutes
    python bench/encoder.py --quick    # 12 sentences: two minutes

Everybody encodes all sentences in turn, round after round, each of them alone and many together,
with trained weights where they are installed; each embedding is compared with float64 before. The
sentences are every so many of the text, so lengths are as frequent as there. Then, where offcut's
time goes, by kernel, beside the limit of each.
"""

from __future__ import annotations

import time

from examples.sentences import tokens, weights
from examples.sentences.contenders import (
    KINDS,
    LEAST_COSINE,
    best_ratio,
    contenders,
    exactly,
    missing,
    standings,
)
from examples.sentences.encoder import Encoder
from examples.sentences.report import kernel_table, speeds
from examples.sentences.run import evenly, read
from examples.sentences.shares import shares
from offcut.experiment.bench import publish, read_options
from offcut.experiment.limits import Limits
from offcut.experiment.table import Cell, Line, Row, Unit, wide_console

COUNT, QUICK_COUNT = 300, 12
ROUNDS, QUICK_ROUNDS = 11, 5
ASKED = {"float32": 1.5, "bfloat16": 2.0}
"""Speed over the best peer."""

SENTENCES = Unit("sentences/s", 1.0, rate=True)


def main() -> None:
    """Measure, print, write."""
    options = read_options(__doc__ or "", without=("slow", "cells", "budget"))
    console = wide_console()
    model = weights.load(0)
    available = read(tokens.tokenizer_of(model.tokenizer))
    count = QUICK_COUNT if options.quick else COUNT
    sentences = [available[index].tokens for index in evenly(available, count)]
    ours = [Encoder(model.weights, kind, options.threads) for kind in KINDS]
    found = standings(
        tuple(contenders(model.weights, ours, threads=options.threads)),
        sentences,
        exactly(model.weights, sentences),
        QUICK_ROUNDS if options.quick else ROUNDS,
        time.process_time if options.threads == 1 else time.perf_counter,
    )
    console.print(speeds(found, f"{len(sentences)} sentences, {sum(map(len, sentences))} tokens"))
    limits, lines = Limits(options.threads), list[Line]()
    for encoder in ours:
        console.print(kernel_table(encoder.kind, tuple(shares(encoder, sentences, limits))))
        seconds = sum(done.seconds for done in encoder.compiles)
        console.print(f"{encoder.kind}: {len(encoder.compiles)} compiles, {seconds:.1f} s")
    for kind, asked in ASKED.items():
        best = best_ratio(found, kind)
        told = (
            ("nobody to compare with", "")
            if best is None
            else (str(best[1]), str(best[0].contender))
        )
        lines.append((f"{kind} over the best peer", f"≥ {asked:g}", *told))
        cosine = min(one.cosine for one in found if one.contender.kind == kind)
        lines.append((f"{kind}, least cosine", f"≥ {LEAST_COSINE[kind]}", f"{cosine:.6f}", ""))
    for line in (*(f"missing: {line}" for line in missing()), f"weights: {model.source}"):
        console.print(line, highlight=False, soft_wrap=True)
    rows = [
        Row(
            "encoder",
            kind,
            tuple(
                Cell(
                    f"{one.contender.name}, {one.contender.batch}",
                    str(one.contender),
                    one.timing,
                    wrong="" if one.timing else f"cosine {one.cosine:.6f}",
                )
                for one in found
                if one.contender.kind == kind
            ),
            SENTENCES,
            len(sentences),
            own=2,
        )
        for kind in KINDS
    ]
    raise SystemExit(publish("encoder", rows, options, lines))


if __name__ == "__main__":
    main()
