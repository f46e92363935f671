"""`offcut cut` and `offcut check`: loop programs in files, cut, proved, drawn, compared, made small.

Loop programs in files, and what the options of `offcut cut` and `offcut check` ask of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from offcut.cli.app import app, refusal, refusals
from offcut.core.program import Program
from offcut.core.text.parser import parse
from offcut.partition import Partition
from offcut.pipeline import partition, prove_equal
from offcut.proof import Certificate
from offcut.reduce import Request


@app.command()
def cut(
    program: Annotated[Path, typer.Argument(help="A loop program, as `parse` reads it.")],
    tile: Annotated[
        list[str] | None, typer.Option(help="i=14, or i=64,16 for two levels; once a loop.")
    ] = None,
    tail: Annotated[
        list[str] | None, typer.Option(help="A strategy for all loops, or i=balance for one.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what was cut and what was left, and why.")
    ] = False,
    png: Annotated[Path | None, typer.Option(help="Where a picture of the tiles goes.")] = None,
    at: Annotated[
        list[str] | None, typer.Option(help="n=29: the value of a size in the picture.")
    ] = None,
) -> None:
    """Separate the conditions of a loop program, cut its loops, prove the result, and print it.

    Example: offcut cut gemm.offcut --tile i=14 --tile j=32 --tail mask --tail i=balance --explain
    """

    with refusals():
        if at and png is None:
            because = "it is a size of the picture, and none is drawn"
            help = f"--png cut.png --at {' --at '.join(at)}"
            raise refusal("cut", f"cannot take --at {at[0]}", because, help)
        partition = cut_file(program, tile or (), tail or ())
        if png is not None:
            partition.plot(png, axes=None, **sizes_at(at or (), partition.source))
    typer.echo(str(partition))
    if explain:
        typer.echo(partition.explain(), err=True)


@app.command()
def check(
    source: Annotated[Path, typer.Argument(help="What must be computed.")],
    emitted: Annotated[
        Path | None,
        typer.Argument(
            help="What another program makes of it; without one, SOURCE itself is tried."
        ),
    ] = None,
    reassociate: Annotated[
        bool, typer.Option("--reassociate", help="Sums may be added in any order.")
    ] = False,
    tile: Annotated[
        list[str] | None, typer.Option(help="How SOURCE is cut where it is tried: i=14.")
    ] = None,
    tail: Annotated[list[str] | None, typer.Option(help="By which strategies: mask.")] = None,
    reduce: Annotated[
        bool,
        typer.Option("--reduce", help="Print a smaller program that fails in the same way."),
    ] = False,
) -> None:
    """Prove for all sizes that EMITTED computes what SOURCE does; or cut, compile and call SOURCE alone.

    A program that is tried is read back, cut as the options say, compiled, and called at small sizes; what
    it computes is compared with the reference interpreter.

    Example: offcut check gemm.offcut --tile i=14 --tail mask --reduce
    """

    with refusals():
        if emitted is not None:
            options = {"--tile": tile, "--tail": tail, "--reduce": reduce}
            typer.echo(str(check_files(source, emitted, reassociate, options)))
            return
        request = request_of(source, tile or (), tail or (), reassociate)
    from offcut.reduce import failure, smaller

    failing = failure(request)
    if failing is None:
        typer.echo(f"{request.program.name} is read back, compiled, and computes what it means")
        return
    typer.echo(f"{failing.step}: {failing.told}", err=True)
    if reduce:
        typer.echo(str(smaller(request, failing)))
    raise typer.Exit(2 if failing.refused else 1)


_PAIRS = {
    "--tile": ("--tile i=14", "--tile i=64,16"),
    "--tail": ("--tail i=balance",),
    "--at": ("--at n=29",),
}


def read_program(path: Path, command: str) -> Program:
    """The loop program in a file; refused where there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        help = f"offcut {command} FILE, of a loop program: its text, as `offcut cut` prints it"
        raise refusal(command, f"cannot read {path}", str(reason), help) from None
    return parse(text)


def cut_file(path: Path, tiles: Sequence[str], tails: Sequence[str]) -> Partition:
    """The program in a file, cut as ``i=14`` or ``i=64,16`` and ``mask`` or ``i=balance`` say."""
    program = read_program(path, "cut")
    tile, tail = _cut(tiles, tails, "cut")
    return partition(program, tile=tile, tail=tail)


def request_of(
    path: Path, tiles: Sequence[str], tails: Sequence[str], reassociate: bool
) -> Request:
    """The program in a file and how it is cut, to be tried.

    Raises DescribeError for an option that is of two programs.
    """
    if reassociate:
        because = "there is one program, and it is not compared with another"
        help = "offcut check SOURCE EMITTED --reassociate"
        raise refusal("check", "cannot take --reassociate", because, help)
    return Request(read_program(path, "check"), *_cut(tiles, tails, "check"))


def check_files(
    source: Path, emitted: Path, reassociate: bool, alone: Mapping[str, object] | None = None
) -> Certificate:
    """Prove that the program in `emitted` computes what the one in `source` does.

    alone   options that are of one program, by name: refused where one is given
    """
    given = [name for name, value in (alone or {}).items() if value]
    if given:
        because = f"{source} and {emitted} are compared as they stand"
        help = f"offcut check FILE {' '.join(given)}"
        raise refusal("check", f"cannot take {', '.join(given)}", because, help)
    first, second = read_program(source, "check"), read_program(emitted, "check")
    return prove_equal(first, second, reassociate)


def _cut(
    tiles: Sequence[str], tails: Sequence[str], command: str
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Tiles and strategies by axis, as options say them."""
    tile = {
        name: tuple(
            read_number(command, f"--tile {text}", part, f"--tile {name}=8")
            for part in value.split(",")
        )
        for name, value, text in _pairs(tiles, "--tile", command)
    }
    named = [text for text in tails if "=" in text]
    for_all = [text for text in tails if "=" not in text]
    if len(for_all) > 1:
        what, at = f"cannot take {len(for_all)} strategies for all loops", " --tail ".join(for_all)
        because, help = "one is for all that are not named", "--tail mask --tail i=balance"
        raise refusal(command, what, because, help, at=f"--tail {at}")
    tail = dict.fromkeys(tile, for_all[0]) if for_all else {}
    tail |= {name: value for name, value, _ in _pairs(named, "--tail", command)}
    idle = [*(for_all if not tile else ()), *(text for text in named if _name(text) not in tile)]
    if idle:
        loop = _name(idle[0]) if "=" in idle[0] else "i"
        raise refusal(
            command,
            f"cannot take --tail {idle[0]}",
            f"no --tile cuts {f'the loop {loop}' if '=' in idle[0] else 'a loop'}, so none has a tail",
            f"--tile {loop}=8 --tail {idle[0]}",
        )
    return tile, tail


def _name(text: str) -> str:
    return text.partition("=")[0].strip()


def _pairs(texts: Sequence[str], option: str, command: str) -> list[tuple[str, str, str]]:
    """Options of a name each; refused where a name comes twice."""
    found = [(*read_pair(command, option, text, _PAIRS[option]), text) for text in texts]
    for number, (name, _, text) in enumerate(found):
        before = next((one for known, _, one in found[:number] if known == name), None)
        if before is not None:
            because = f"{option} {before} came before"
            help = f"{option} {name}=… once"
            raise refusal(command, f"cannot take {option} {text}", because, help)
    return found


def sizes_at(texts: Sequence[str], program: Program) -> dict[str, int]:
    """``n=29`` as a size and its value.

    Raises DescribeError where a size of `program` has none, or it has no such size.
    """
    pairs = _pairs(texts, "--at", "cut")
    found = {
        name: read_number("cut", f"--at {text}", value, f"--at {name}=29")
        for name, value, text in pairs
    }
    names = [size.name for size in program.sizes]
    if found.keys() != {*names}:
        raise refusal(
            "cut",
            f"cannot draw {program.name} at {', '.join(texts) or 'no sizes'}",
            f"its sizes are {', '.join(names) or 'none'}",
            " ".join(f"--at {name}=29" for name in names) or "no --at",
        )
    return found


Certificates: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="A folder with cert.pem and key.pem of the pool; else as dask is configured."
    ),
]


def read_pair(command: str, option: str, text: str, help: tuple[str, ...]) -> tuple[str, str]:
    """``i=14`` as a name and its value.

    Raises DescribeError where one of the two is not there.
    """
    name, _, value = (part.strip() for part in text.partition("="))
    if not (name and value):
        raise refusal(command, f"cannot read {option} {text}", "it is not a name=value", *help)
    return name, value


def read_number(command: str, given: str, text: str, help: str) -> int:
    """A whole number from 0 on.

    given  the option in which `text` stands, as it was written

    Raises DescribeError for anything else.
    """
    if not text.strip().isdecimal():
        because = f"{text!r} is not a whole number from 0 on" if text else "there is no number"
        raise refusal(command, f"cannot read {given}", because, help)
    return int(text)
