"""Loop programs in files, and what the options of `offcut cut` and `offcut check` ask of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from offcut.cli.options import read_number, read_pair
from offcut.core.program import Program
from offcut.core.text.parser import parse
from offcut.errors import DescribeError
from offcut.partition import Partition
from offcut.pipeline import partition, prove_equal
from offcut.proof import Certificate
from offcut.reduce import Request

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
        raise DescribeError(
            command, f"cannot read {path}", because=str(reason), help=(help,)
        ) from None
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
        raise DescribeError(
            "check",
            "cannot take --reassociate",
            because="there is one program, and it is not compared with another",
            help=("offcut check SOURCE EMITTED --reassociate",),
        )
    return Request(read_program(path, "check"), *_cut(tiles, tails, "check"))


def check_files(
    source: Path, emitted: Path, reassociate: bool, alone: Mapping[str, object] | None = None
) -> Certificate:
    """Prove that the program in `emitted` computes what the one in `source` does.

    alone   options that are of one program, by name: refused where one is given
    """
    used = [name for name, value in (alone or {}).items() if value]
    if used:
        raise DescribeError(
            "check",
            f"cannot take {', '.join(used)}",
            because=f"{source} and {emitted} are compared as they stand",
            help=(f"offcut check FILE {' '.join(used)}",),
        )
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
        raise DescribeError(
            command,
            f"cannot take {len(for_all)} strategies for all loops",
            at=f"--tail {' --tail '.join(for_all)}",
            because="one is for all that are not named",
            help=("--tail mask --tail i=balance",),
        )
    tail = dict.fromkeys(tile, for_all[0]) if for_all else {}
    tail |= {name: value for name, value, _ in _pairs(named, "--tail", command)}
    idle = [*(for_all if not tile else ()), *(text for text in named if _name(text) not in tile)]
    if idle:
        loop = _name(idle[0]) if "=" in idle[0] else "i"
        raise DescribeError(
            command,
            f"cannot take --tail {idle[0]}",
            because=f"no --tile cuts {f'the loop {loop}' if '=' in idle[0] else 'a loop'}, so none has a tail",
            help=(f"--tile {loop}=8 --tail {idle[0]}",),
        )
    return tile, tail


def _name(text: str) -> str:
    return text.partition("=")[0].strip()


def _pairs(texts: Sequence[str], option: str, command: str) -> list[tuple[str, str, str]]:
    """Options of a name each; refused where a name comes twice."""
    pairs = [(*read_pair(command, option, text, _PAIRS[option]), text) for text in texts]
    for number, (name, _, text) in enumerate(pairs):
        before = next((one for known, _, one in pairs[:number] if known == name), None)
        if before is not None:
            raise DescribeError(
                command,
                f"cannot take {option} {text}",
                because=f"{option} {before} came before",
                help=(f"{option} {name}=… once",),
            )
    return pairs


def sizes_at(texts: Sequence[str], program: Program) -> dict[str, int]:
    """``n=29`` as a size and its value.

    Raises DescribeError where a size of `program` has none, or it has no such size.
    """
    pairs = _pairs(texts, "--at", "cut")
    sizes = {
        name: read_number("cut", f"--at {text}", value, f"--at {name}=29")
        for name, value, text in pairs
    }
    names = [size.name for size in program.sizes]
    if sizes.keys() != {*names}:
        raise DescribeError(
            "cut",
            f"cannot draw {program.name} at {', '.join(texts) or 'no sizes'}",
            because=f"its sizes are {', '.join(names) or 'none'}",
            help=(" ".join(f"--at {name}=29" for name in names) or "no --at",),
        )
    return sizes
