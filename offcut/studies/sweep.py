"""A sweep: the study of one contraction over sizes, strategies against each other and peers, as a command line spells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from offcut import debug
from offcut.experiment.outputs import wide_console
from offcut.studies.contraction import check_letters, parse_contraction
from offcut.studies.definition import Source
from offcut.studies.errors import refusal
from offcut.studies.peers import PEERS, load_peers
from offcut.studies.rows import Row
from offcut.studies.run import Outcome, run_study
from offcut.studies.sizes import LARGEST, names_of
from offcut.studies.tables import number


def sweep(
    text: str,
    fixed: Mapping[str, int],
    sizes: Sequence[str],
    out: Path,
    *,
    strategies: Sequence[str],
    peers: Sequence[str],
    points: int | None,
    seconds_per_cell: float,
    seconds: float,
    packed: bool,
) -> tuple[Outcome, tuple[str, ...]]:
    """Measure the contraction `text` into the folder `out`, as a study does; return its outcome, and the peers that are not installed.

    Off a terminal, which has a bar, each row is a line on standard error as soon as it is measured.

    fixed    letter -> extent of the axes that are not swept
    sizes    of the others, as `sizes_of_texts` reads them, `points` of a range at most
    strategies  names, or ``module:function``; the ratios to the best peer are of the first
    seconds_per_cell  which one call may take at most, too
    seconds  from the first row on, which is always measured, after which none is begun
    packed   whether operands after the first without swept sizes are packed constants

    Raises DescribeError where these do not fit, OffcutError where a file cannot be written.
    """
    swept = sizes_of_texts(sizes, points)
    check_letters(parse_contraction(text), fixed, [x for key in swept for x in names_of(key)])
    at = ", ".join(f"{letter}={extent}" for letter, extent in fixed.items())
    operator: dict[str, Any] = {
        "name": f"float32 {text}" + (f" at {at}" if at else ""),
        "einsum": text,
        "sizes": {**swept, **fixed},
        **({} if packed else {"constants": []}),
    }
    missing = load_peers([name for name in peers if name.partition(".")[0] in PEERS]).missing
    contenders = [{"strategy": name} for name in dict.fromkeys(strategies)]
    contenders += [{"peer": name} for name in dict.fromkeys(peers) if name not in missing]
    head = {"name": "sweep", "processes": 1, "limits": True, "patience": seconds_per_cell}
    head["seconds_per_cell"] = seconds_per_cell
    tables = {"study": head, "operators": [operator], "contenders": contenders}
    outcome = run_study(Source(tables, Path("sweep")).read(), out, seconds=seconds, tell=_tell)
    return outcome, missing


def sizes_of_texts(texts: Sequence[str], points: int | None) -> dict[str, Any]:
    """Return the sizes of a study's operator that texts spell.

    texts    ``m=1:512`` a range, ``m=1:512:8`` every eighth, ``m=1,7,100`` these, ``ik=1:512`` two letters together
    points   most combinations that are taken of ranges (None: no limit); a list is taken whole

    >>> sizes_of_texts(["m=1:512", "ik=3,4"], 16)
    {'m': {'range': '1:512', 'points': 4}, 'i,k': [3, 4]}

    Raises DescribeError where a text is none of these, or an axis is swept twice.
    """
    each = LARGEST if points is None else max(2, round(points ** (1 / max(len(texts), 1))))
    sizes: dict[str, Any] = {}
    for text in texts:
        letters, equals, body = text.replace(" ", "").partition("=")
        numbers, key = body.split(","), ",".join(letters)
        is_range = ":" in body
        if not (equals and letters.isalpha() and (is_range or all(map(str.isdecimal, numbers)))):
            help = ("m=1:512 or m=1:512:8 for a range, both ends included", "m=1,7,100 for a list")
            because = "it is not an axis with a range or a list of whole numbers"
            raise refusal(f"--sizes {text}", because, *help, what="cannot read the sizes")
        if key in sizes:
            because = f"the axis {letters!r} has sizes twice"
            raise refusal(f"--sizes {text}", because, f"--sizes {letters}=1,7,100")
        sizes[key] = {"range": body, "points": each} if is_range else list(map(int, numbers))
    return sizes


def _tell(row: Row) -> None:
    if not wide_console(stderr=True).is_terminal:
        medians = ((name, row.seconds(name)) for name in row.samples)
        figures = ", ".join(
            f"{name} {'–' if s is None else number(row.figure(row.samples[name], s))}"
            for name, s in medians
        )
        debug.note(0, f"sweep: {row.name}: {figures} {row.unit}", logger="experiment")
