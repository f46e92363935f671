"""Schedules by hand that are drawn for a program, and edits of the texts of schedules.

A drawn line is kept where its primitive is legal; what a target makes of all of them is for the test to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import offcut as oc
from tests.facade import STRATEGIES
from tests.hand_programs import Case

TILES = (1, 2, 3, 4, 5, 7, 8, 16)
TAILS = (*(str(one) for one in STRATEGIES if str(one) != "exact"), "exact", "")
ENDINGS = (
    (),
    (),
    (),
    ("separate 1",),
    ("separate 16", "bind * lane"),
    ("separate 4", "bind * lane tree", "bind * lane", "bind * thread"),
    ("separate 1", "bind * thread"),
)
"""What a processor is told behind primitives; nothing: its policy decides."""


KINDS = (
    *("split", "split", "split", "levels", "order", "fuse", "at", "read", "write", "value"),
    *("inline", "rfactor", "bind", "bind", "bind", "cover", "chunks", "jam", "tiles", "tiles"),
)
"""What lines are drawn, as often as they stand here."""


def drawn_schedule(case: Case, rng: Random, microkernels: Sequence[Any] = ()) -> oc.Schedule:
    """Return a schedule of some primitives, each of them legal where it stands.

    microkernels  of a target, that covers may name
    """
    made = oc.create_schedule(**case.request)
    made.with_microkernels(microkernels)
    name = made.schedule.name
    for _ in range(rng.choice((1, 2, 2, 3, 4, 6))):
        for line in _drawn_lines(case, made, rng, [one.name for one in microkernels]):
            try:
                made.apply(oc.Schedule.parse(f"schedule {name}\n{line}"))
            except oc.OffcutError:
                break
    return made.schedule


def _drawn_lines(case: Case, made: Any, rng: Random, kernels: Sequence[str]) -> Iterator[str]:
    """Yield lines that belong together, by the loops that there are before the first."""
    stage = rng.choice(made.stages)
    loops = list(made[stage].loops)
    loop = rng.choice(loops) if loops else "i"
    tile, tail = rng.choice(TILES), rng.choice(TAILS)
    number = len(made.schedule.steps)
    unit = rng.choice(("lane", "lane", "lane tree", "thread", "thread", "unroll", "serial"))
    kind = rng.choice(KINDS)
    names = f"{loop}{number}o {loop}{number}i"
    match kind:
        case "split":
            yield f"split {stage}.{loop} {tail} {tile} as {names}".replace("  ", " ")
            if rng.random() < 0.3:
                yield f"bind {stage}.{rng.choice(names.split())} {unit}"
        case "levels":
            inner = rng.choice(("mask", "guard", "cut", "ladder", "pad"))
            yield f"split {stage}.{loop} {tail or 'cut'} {tile * 3} then {inner} {tile} as {loop}{number}g {names}"
        case "order":
            rng.shuffle(loops)
            yield " ".join(("order", stage, *loops))
        case "fuse" if len(loops) > 1:
            at = rng.randrange(len(loops) - 1)
            yield f"fuse {stage}.{loops[at]} {stage}.{loops[at + 1]} as {loops[at]}_{loops[at + 1]}"
        case "at":
            depth = rng.choice(("", "", " depth 2"))
            yield f"at {rng.choice(made.stages)} {stage}.{loop}{depth}"
        case "read":
            what = rng.choice([*(one.name for one in case.arguments), *made.stages])
            yield f"stage read {what} for {stage} as {what}{number}"
            yield f"at {what}{number} {stage}.{loop}"
        case "write":
            yield f"stage write {stage} as {stage}{number}"
            yield f"at {stage}{number} {stage}.{loop}"
        case "value" if case.values:
            value = rng.choice(case.values)
            yield f"stage value {value}".replace(" as V(", f" as V{number}(")
            reader = value.split(" for ")[1].split()[0]
            yield f"at V{number} {reader}.{rng.choice(made[reader].loops or ('i',))}"
        case "inline":
            yield f"inline {stage}"
        case "rfactor":
            yield f"rfactor {stage}.{loop} as {stage}F{number}"
        case "bind":
            yield f"bind {stage}.{loop} {unit}"
        case "cover":
            yield f"cover {stage} at {loop} {rng.choice(['vectors', *kernels])}"
        case "chunks":
            yield f"split {stage}.{loop} {tile} as {names}"
            yield f"bind {stage}.{names.split()[1]} lane"
            yield f"bind {stage}.{names.split()[0]} thread"
        case "tiles" if len(made.stages) > 1 and len(loops) > 1:
            producer = rng.choice([one for one in made.stages if one != stage])
            heads, bodies = ([f"{one}{number}{end}" for one in loops[:2]] for end in "oi")
            for one, head, body in zip(loops, heads, bodies, strict=False):
                yield f"split {stage}.{one} {rng.choice(TAILS[:-1])} {rng.choice(TILES)} as {head} {body}"
            yield " ".join(("order", stage, *heads, *bodies))
            yield f"at {producer} {stage}.{rng.choice(heads)}"
            first = made[producer].loops[:1] or ("i",)
            kernel = rng.choice(["vectors", "fma_float32_avx512", *kernels])
            yield f"cover {producer} at {first[0]} {kernel}"
            yield f"cover {stage} at {bodies[0]} vectors"
        case "jam":
            yield f"split {stage}.{loop} {tile} as {names}"
            yield f"bind {stage}.{names.split()[1]} unroll"
        case _:
            pass


def varied_schedule(text: str, rng: Random) -> str:
    """Return the text of a policy's schedule with other tiles, strategies, depths and orders in some of its lines."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(1, len(lines))
        lines[at] = _varied_line(lines[at], rng)
    return "\n".join(lines)


def _varied_line(line: str, rng: Random) -> str:
    """Return a line with another number, strategy, or order of loops."""
    indent, words = line[: len(line) - len(line.lstrip())], line.split()
    match words[0]:
        case "split":
            if rng.random() < 0.5:
                return re.sub(r"(?<= )\d+(?= )", str(rng.choice(TILES)), line, count=1)
            return re.sub(r"(split \S+ )[a-z]+", rf"\1{rng.choice(TAILS[:-1])}", line)
        case "order":
            rest = words[2:]
            rng.shuffle(rest)
            return indent + " ".join([*words[:2], *rest])
        case "at" if "depth" in words:
            return re.sub(r"depth \d+", f"depth {rng.choice((1, 2, 3, 4))}", line)
        case "at":
            return f"{line} depth 2"
        case _:
            return line


def edited_schedule(text: str, rng: Random) -> str:
    """Return the text of a schedule with one edit, as a user's hand makes them: a line left out, two that change places, another
    height, another strategy, another cover, a name misspelt.
    """
    lines = text.splitlines()
    if len(lines) == 1:
        return text
    at = rng.randrange(1, len(lines))
    match rng.choice(("remove", "swap", "height", "strategy", "cover", "misspell")):
        case "remove":
            del lines[at]
        case "swap":
            other = rng.randrange(1, len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case "height":
            at = _place(lines, r"\d", at)
            lines[at] = re.sub(
                r"\b\d+\b", str(rng.choice((0, 1, 2, 3, 5, 16, 17, 64))), lines[at], count=1
            )
        case "strategy":
            at = _place(lines, r"^\s*split", at)
            lines[at] = re.sub(r"(split \S+ )[a-z]+", rf"\1{rng.choice(TAILS[:-1])}", lines[at])
        case "cover":
            at = _place(lines, r"^\s*cover", at)
            names = sorted(set(re.findall(r"cover \S+(?: at \S+)? ([^\s()]+)", text)) | {"vectors"})
            lines[at] = re.sub(
                r"(cover \S+(?: at \S+)? )[^\s()]+", rf"\1{rng.choice(names)}", lines[at]
            )
        case _:
            words = re.findall(r"[A-Za-z_]\w+", lines[at])[1:]
            if words:
                word = rng.choice(words)
                lines[at] = lines[at][::-1].replace(word[::-1], f"{word}x"[::-1], 1)[::-1]
    return "\n".join(lines)


def _place(lines: Sequence[str], pattern: str, at: int) -> int:
    """Return the place of the next line from `at` on that has a pattern; `at` where none has."""
    order = [*range(at, len(lines)), *range(1, at)]
    return next((k for k in order if re.search(pattern, lines[k])), at)
