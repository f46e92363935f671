"""What the demo found, as tables: the encoder, everybody's speed, where time goes, an example."""

from collections.abc import Iterator, Sequence
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.sentences.contenders import LEAST_COSINE, Standing, best_ratio
from examples.sentences.run import Result
from examples.sentences.shares import Share
from examples.sentences.tokens import LONGEST, SHORTEST

WIDEST = 160  # characters of a neighbour's text that are printed


def report(result: Result, console: Console, threads: str) -> None:
    """Print `result` on `console`; `threads` says how many threads everybody was allowed."""
    parts: tuple[RenderableType, ...] = (
        facts(result, threads),
        speeds(result.standings, _compared(result)),
        Text("\n".join(verdicts(result)) + "\n", style="dim"),
        *(kernel_table(kind, found) for kind, found in result.shares.items()),
        Text(HOW_TO_READ, style="dim"),
        example(result),
    )
    console.print(Group(*parts))


HOW_TO_READ = (
    "GFLOP/s count the products only. The limit of a kernel is the least time that its products take"
    " at the peak of the fastest instruction, or its bytes at the bandwidth of the first cache that"
    " holds them, each measured just now, at its average call.\n"
)


def facts(result: Result, threads: str) -> Table:
    """Return the table of what ran, on what."""
    lengths = [len(sentence) for sentence in result.sentences]
    cut = sum(sentence.truncated for sentence in result.sentences)
    table = Table(title="A sentence encoder, wholly in offcut", show_header=False)
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
        *_compiles(result),
        *(
            (f"all in {kind}", f"{seconds:.2f} s on the wall, in batches of rows without padding")
            for kind, seconds in result.encoded.items()
        ),
        ("picture", str(result.picture)),
        ("this run", f"{result.seconds:.0f} s"),
    ):
        table.add_row(name, Text(value))
    return table


def _compiles(result: Result) -> Iterator[tuple[str, str]]:
    for kind, done in result.compiles.items():
        seconds = sum(one.seconds for one in done)
        slowest = max(done, key=lambda one: one.seconds)
        yield (
            f"compiles, {kind}",
            f"{len(done)} kernels for all layers and lengths, {seconds:.2f} s in all, proofs included"
            f" ({slowest.kernel} {slowest.seconds:.2f} s; less where an earlier run left object code"
            " in the cache)",
        )
    yield "compiles later", f"{result.compiles_later} from the first sentence to the last"


def _which(result: Result) -> str:
    count = len(result.sentences)
    if result.options.everything:
        return f"{count}, the whole text"
    if not result.options.every_length:
        return f"{count}, a sample that does not hold every length"
    return f"{count}, a fixed sample that holds every length (seed {result.options.seed})"


def speeds(standings: Sequence[Standing], title: str) -> Table:
    """Return the table of everybody's speed and exactness on the same sentences."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("elements", "encoder", "batch"):
        table.add_column(name, no_wrap=True)
    for name in ("sentences\na second", "spread", "least\ncosine"):
        table.add_column(name, justify="right")
    for one in standings:
        who, timing = one.contender, one.timing
        rate = "WRONG" if timing is None else f"{one.count / timing.seconds:.1f}"
        spread = "" if timing is None else f"{timing.spread:.0%}"
        style = "bold" if who.name == "offcut" else None
        table.add_row(who.kind, who.name, who.batch, rate, spread, f"{one.cosine:.6f}", style=style)
    return table


def _compared(result: Result) -> str:
    tokens = sum(len(result.sentences[index]) for index in result.compared)
    return f"The whole encoder on {len(result.compared)} of them, {tokens} tokens, in turns"


def verdicts(result: Result) -> Iterator[str]:
    """Yield what the table of speeds comes to, a line for each element type, and who is missing."""
    yield (
        f"Medians of {result.options.rounds} rounds in processor time, and the distance of the"
        " quartiles; cosines are with numpy's encoder in float64."
    )
    for kind in result.compiles:
        found = best_ratio(result.standings, kind)
        asked = f"asked: a cosine of {LEAST_COSINE[kind]} or more"
        if found is None:
            yield f"{kind}: no library to compare with; {asked}."
            continue
        other, ratio = found
        yield (
            f"{kind}: offcut is {ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f}) times as fast as"
            f" {other.contender.name}, {other.contender.batch}; {asked}."
        )
    if result.missing:
        yield f"Not compared: {'; '.join(result.missing)}."


def kernel_table(kind: str, found: tuple[Share, ...]) -> Table:
    """Return the table of where offcut's time went in one element type."""
    table = Table(title=f"offcut's kernels, {kind}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("kernel", no_wrap=True)
    for name in ("calls", "seconds", "share", "GFLOP/s", "of the\nlimit", "bound by"):
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(
            one.kernel,
            str(one.calls),
            f"{one.seconds:.3f}",
            f"{one.share:.1%}",
            f"{one.flop / one.seconds / 1e9:.0f}" if one.flop else "",
            f"{one.limit / one.seconds:.0%}",
            one.by,
        )
    seconds, flop = sum(one.seconds for one in found), sum(one.flop for one in found)
    limit = sum(one.limit for one in found)
    table.add_section()
    table.add_row(
        *("all", str(sum(one.calls for one in found)), f"{seconds:.3f}", ""),
        *(f"{flop / seconds / 1e9:.0f}", f"{limit / seconds:.0%}", ""),
        style="bold",
    )
    return table


def example(result: Result) -> Table:
    """Return the query and the sentences nearest to it."""
    note = None if result.model.real else "random weights: shared words at best, no meaning"
    table = Table("cosine", f"nearest to: {result.options.query}", caption=note)
    for near in result.neighbours:
        short = near.text if len(near.text) <= WIDEST else near.text[: WIDEST - 1] + "…"
        table.add_row(f"{near.cosine:.3f}", Text(short))
    return table
