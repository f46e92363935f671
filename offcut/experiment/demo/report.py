"""What the demo found, as tables: the encoder, its dense layers by two engines, an example."""

from statistics import median

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from offcut.experiment.demo.run import Comparison, Result
from offcut.experiment.demo.tokens import LONGEST, SHORTEST

WIDEST = 160  # characters of a neighbour's text that are printed


def report(result: Result, console: Console, threads: str) -> None:
    """Print `result` on `console`; `threads` says how many threads numpy was allowed."""
    console.print(
        Group(facts(result, threads), dense_layers(result), reading(result), example(result))
    )


def facts(result: Result, threads: str) -> Table:
    """Return the table of what ran and how exact it was."""
    lengths = [len(sentence) for sentence in result.sentences]
    cut = sum(sentence.truncated for sentence in result.sentences)
    shapes = {done.shape for done in result.compiles}
    seconds = sum(done.seconds for done in result.compiles)
    apart = result.difference
    table = Table(title="A sentence encoder, every dense layer through offcut", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in (
        ("machine", f"{result.machine} · {threads}"),
        ("weights", result.model.source),
        (
            "text",
            f"language reference of Python {result.machine.python}: {result.available} sentences"
            f" of {SHORTEST} tokens or more, {result.distinct} of them distinct",
        ),
        ("sentences encoded", _which(result)),
        (
            "lengths seen",
            f"{len(set(lengths))} distinct, {min(lengths)} to {max(lengths)} tokens,"
            f" median {median(lengths):g}; {sum(lengths)} tokens in all",
        ),
        ("truncated", f"{cut} of them, and {result.truncated} of the text, to {LONGEST} tokens"),
        (
            "compiles",
            f"{len(result.compiles)} for {len(shapes)} layer shapes, {seconds:.2f} s in all, proof"
            f" and packing included (less where an earlier run left object code in the cache);"
            f" {result.compiles_later} more from the first sentence to the last",
        ),
        (
            "largest difference",
            f"{apart.offcut:.1e} from the same encoder in float64, over {apart.sentences} sentences"
            f" (numpy in float32: {apart.numpy:.1e}); embeddings have length 1",
        ),
        ("offcut from numpy", f"at most {apart.between:.1e}, over all sentences"),
        (
            "whole encoder",
            f"{result.encode_offcut:.2f} s on the wall with offcut's dense layers,"
            f" {result.encode_numpy:.2f} s with numpy's",
        ),
        ("picture", str(result.picture)),
        ("this run", f"{result.seconds:.0f} s"),
    ):
        table.add_row(name, Text(value))
    return table


def _which(result: Result) -> str:
    count = len(result.sentences)
    if result.options.everything:
        return f"{count}, the whole text"
    if not result.options.every_length:
        return f"{count}, a sample that does not hold every length"
    return f"{count}, a fixed sample that holds every length (seed {result.options.seed})"


def dense_layers(result: Result) -> Table:
    """Return the table of dense layers: one row a shape, then the sums."""
    title = "Dense layers with bias on the same sentences, in turns, float32"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("layer shape", no_wrap=True)
    for name in (
        "calls",
        "offcut\nseconds",
        "numpy\nseconds",
        "numpy /\noffcut",
        "median\nratio",
        "offcut\nGFLOP/s",
        "numpy\nGFLOP/s",
    ):
        table.add_column(name, justify="right")
    rows = result.comparisons
    for row in rows:
        table.add_row(str(row.shape), *_numbers((row,)))
    table.add_section()
    table.add_row("all without gelu", *_numbers(linear(rows)))
    table.add_row("all", *_numbers(rows), style="bold")
    return table


def linear(rows: tuple[Comparison, ...]) -> tuple[Comparison, ...]:
    """Return those of `rows` whose layer has no activation."""
    return tuple(row for row in rows if not row.shape.gelu)


def _numbers(rows: tuple[Comparison, ...]) -> tuple[str, ...]:
    offcut, numpy = sum(row.offcut for row in rows), sum(row.numpy for row in rows)
    gflop = sum(row.gflop for row in rows)
    return (
        str(sum(row.calls for row in rows)),
        f"{offcut:.2f}",
        f"{numpy:.2f}",
        f"{numpy / offcut:.2f}",
        f"{rows[0].ratio:.2f}" if len(rows) == 1 else "",
        f"{gflop / offcut:.0f}",
        f"{gflop / numpy:.0f}",
    )


def reading(result: Result) -> Text:
    """Return how to read the table of dense layers: scipy's gelu is slow, and counts in numpy's."""
    rows = result.comparisons
    offcut, numpy = sum(row.offcut for row in rows), sum(row.numpy for row in rows)
    gelu = result.numpy_gelu
    return Text(
        f"Seconds are processor time. numpy / offcut is time over time (above 1: offcut is"
        f" faster); the median ratio is over the calls; GFLOP/s count the matrix products only.\n"
        f"{gelu:.2f} s of numpy's {numpy:.2f} s are gelu by scipy's erf; offcut's gelu is part of"
        f" its kernel. Were gelu free for numpy alone, the ratio over all layers would be"
        f" {(numpy - gelu) / offcut:.2f} instead of {numpy / offcut:.2f}.\n",
        style="dim",
    )


def example(result: Result) -> Table:
    """Return the query and the sentences nearest to it."""
    note = None if result.model.real else "random weights: shared words at best, no meaning"
    table = Table("cosine", f"nearest to: {result.options.query}", caption=note)
    for near in result.neighbours:
        short = near.text if len(near.text) <= WIDEST else near.text[: WIDEST - 1] + "…"
        table.add_row(f"{near.cosine:.3f}", Text(short))
    return table
