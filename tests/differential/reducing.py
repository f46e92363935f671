"""Makes a case that fails small, as long as it fails in the same way."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from .case import Case, Outcome
from .checking import normal
from .reading import Line, Source, loop_of, read, store_of

Check = Callable[[Case], Outcome]
MOST_CHECKS, MOST_SECONDS = 300, 30.0


@dataclass(frozen=True)
class Finding:
    """A case that failed, the same made small, and how that fails."""

    case: Case
    small: Case
    outcome: Outcome


def reduced(case: Case, outcome: Outcome, check: Check) -> Case:
    """`case` made smaller step by step, while its outcome is of the same kind and symptom.

    The search ends after a number of checks and of seconds; one that found something goes on where
    it was, so that each part of a program is tried in turn.
    """
    checks, seconds, place = MOST_CHECKS, MOST_SECONDS, 0
    seen = {case.dump()}
    while checks > 0 and seconds > 0:
        simpler = list(_smaller(case))
        order = simpler[place:] + simpler[:place]
        for offset, smaller in enumerate(order):
            if smaller.dump() in seen:
                continue
            seen.add(smaller.dump())
            found = check(smaller)
            checks, seconds = checks - 1, seconds - found.seconds
            if found.alike(outcome):
                case, place = smaller, (place + offset) % len(simpler)
                break
            if checks <= 0 or seconds <= 0:
                break
        else:
            break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Simpler cases, the greatest steps first."""
    for step in case.steps:
        if len(case.steps) > 1:
            yield case.with_(steps=(step,))
    for sizes in case.sizes:
        if len(case.sizes) > 1:
            yield case.with_(sizes=(sizes,))
    for change in (
        {"threads": 1},
        {"mask": ""},
        {"emulated": False},
        {"verify": False},
        {"copies": None},
        {"layouts": ("rows",)},
        {"data": "whole"},
        {"strategy": "auto"},
    ):
        if case.with_(**change) != case:
            yield case.with_(**change)
    if not case.described:
        source = read(case.text)
        for body in _bodies(source.body):
            yield from _program(case, source.with_body(body))
        yield from _declared(case, source)
    for name in case.tile:
        tail = (
            case.tail
            if isinstance(case.tail, str)
            else {k: v for k, v in case.tail.items() if k != name}
        )
        yield case.with_(tile={k: v for k, v in case.tile.items() if k != name}, tail=tail)
    for name, tile in case.tile.items():
        simpler = (
            [tile[0], tile[-1]] if isinstance(tile, tuple) else [t for t in (2, 4, 8) if t < tile]
        )
        for t in simpler:
            yield case.with_(tile={**case.tile, name: t})
    if isinstance(case.tail, str):
        if case.tail not in ("cut", "guard"):
            yield case.with_(tail="cut")
    else:
        for name, tail in case.tail.items():
            if tail not in ("cut", "guard"):
                yield case.with_(tail={**case.tail, name: "cut"})
    declared = read(case.text).sizes
    for number, sizes in enumerate(case.sizes):
        for size in declared:
            value = sizes[size.name]
            for less in sorted({0, 1, 2, value // 2, value - size.multiple}):
                if less < value and size.allows(less):
                    changed = {**sizes, size.name: less}
                    yield case.with_(
                        sizes=(*case.sizes[:number], changed, *case.sizes[number + 1 :])
                    )


def _program(case: Case, source: Source) -> Iterator[Case]:
    """`case` with this program, without the tiles of loops that are gone."""
    from .cuts import loops_of

    names = set(loops_of(source)) | {n.split(".")[-1] for n in loops_of(source)}
    tile, tail = dict(case.tile), case.tail
    for name in list(tile):
        plain = name.split(".")[-1]
        if name not in names:
            value = tile.pop(name)
            if plain in names:
                tile[plain] = value
            if not isinstance(tail, str) and name in tail:
                tail = {
                    (plain if k == name else k): v
                    for k, v in tail.items()
                    if k != name or plain in names
                }
    yield case.with_(text=str(source), tile=tile, tail=tail)


def _bodies(body: tuple[Line, ...]) -> Iterator[tuple[Line, ...]]:
    """Blocks with one thing less."""
    for place, line in enumerate(body):
        before, after = body[:place], body[place + 1 :]
        if line.text != "else":
            rest = (
                after[1:]
                if line.text.startswith("if ") and after[:1] and after[0].text == "else"
                else after
            )
            if before or rest:
                yield (*before, *rest)
            if line.body and line.text.startswith("if "):
                yield (*before, *line.body, *rest)
        elif before:
            yield (*before, *after)
            yield (*before[:-1], *line.body, *after)
        for inner in _bodies(line.body):
            yield (*before, Line(line.text, inner), *after)
        for text in _simpler(line.text):
            yield (*before, Line(text, line.body), *after)
        if line.text.startswith("for "):
            yield (*before, *_pinned(line), *after)


def _pinned(line: Line) -> tuple[Line, ...]:
    """The body of a loop at its first iteration."""
    loop = loop_of(line.text)

    def at(inner: Line) -> Line:
        low = loop.low if re.fullmatch(r"\w+", loop.low) else f"({loop.low})"
        return Line(re.sub(rf"\b{loop.name}\b", low, inner.text), tuple(map(at, inner.body)))

    return tuple(map(at, line.body))


def _simpler(text: str) -> Iterator[str]:
    """Simpler statements in place of one."""
    if text.startswith("for "):
        loop = loop_of(text)
        if loop.step != "1":
            yield str(replace(loop, step="1"))
        if loop.low != "0":
            yield str(replace(loop, low="0"))
        for low in _simpler_expressions(loop.low):
            yield str(replace(loop, low=low))
        for high in _simpler_expressions(loop.high):
            yield str(replace(loop, high=high))
    elif text.startswith("if "):
        for condition in _simpler_expressions(text[3:]):
            yield f"if {condition}"
    elif text != "else":
        store = store_of(text)
        if store.op != "=":
            yield str(replace(store, op="="))
        for value in _simpler_expressions(store.value):
            yield str(replace(store, value=value))
        for place, part in enumerate(store.index):
            for simple in _simpler_expressions(part):
                yield str(
                    replace(store, index=(*store.index[:place], simple, *store.index[place + 1 :]))
                )


def _simpler_expressions(text: str) -> Iterator[str]:
    """An operand in place of an operation, a literal in place of a read."""
    try:
        tree = ast.parse(text.replace("[]", "[()]"), mode="eval").body
    except SyntaxError:
        return
    found = dict.fromkeys(ast.unparse(node) for node in _replaced(tree))
    found.pop(ast.unparse(tree), None)
    for simple in found:
        yield simple.replace("[()]", "[]")


def _replaced(node: ast.expr) -> Iterator[ast.expr]:
    """`node` with one node in it replaced by an operand of it."""
    parts: list[ast.expr] = []
    match node:
        case ast.BinOp(left, _, right):
            parts = [left, right]
        case ast.UnaryOp(_, operand):
            parts = [operand]
        case ast.BoolOp(_, values):
            parts = values
        case ast.Call(_, args):
            parts = args
        case ast.Subscript():
            parts = [ast.Constant(1)]
        case ast.Constant(int() as value) if value > 1:
            parts = [ast.Constant(1)]
    yield from parts
    for name, old in ast.iter_fields(node):
        if isinstance(old, ast.expr):
            for new in _replaced(old):
                yield _with(node, name, new)
        elif isinstance(old, list):
            for place, one in enumerate(old):
                if isinstance(one, ast.expr):
                    for new in _replaced(one):
                        yield _with(node, name, [*old[:place], new, *old[place + 1 :]])


def _with(node: ast.expr, name: str, value: object) -> ast.expr:
    return type(node)(**{**dict(ast.iter_fields(node)), name: value})


def _declared(case: Case, source: Source) -> Iterator[Case]:
    """Fewer and simpler declarations."""
    text = "\n".join(line.text for line in source.walk())
    for buffer in source.buffers:
        if not re.search(rf"\b{buffer.name}\[", text):
            yield case.with_(
                text=str(
                    replace(source, buffers=tuple(b for b in source.buffers if b is not buffer))
                )
            )
    everything = "\n".join([text, *map(str, source.buffers), *source.assumptions])
    for size in source.sizes:
        less = replace(source, sizes=tuple(s for s in source.sizes if s is not size))
        if not re.search(rf"\b{size.name}\b", everything):
            sizes = tuple({k: v for k, v in s.items() if k != size.name} for s in case.sizes)
            yield case.with_(text=str(less), sizes=sizes)
    for old, new in (
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("int8", "int32"),
        ("int64", "int32"),
        ("float64", "float32"),
        ("float32", "int32"),
        (" multiple_of 4", ""),
        (" multiple_of 8", ""),
        ("constant ", "input "),
    ):
        if old in case.text:
            yield case.with_(text=re.sub(rf"(?<!\w){old}\b", new, case.text))


def written(finding: Finding, folder: Path) -> Path | None:
    """The file that says it, or None where one with that symptom is there."""
    case, outcome = finding.small, finding.outcome
    folder.mkdir(parents=True, exist_ok=True)
    key = _key(case, outcome)
    path = folder / f"{outcome.kind}_{key}.txt"
    if path.exists():
        return None
    path.write_text(report(finding))
    with (folder / "INDEX.md").open("a") as index:
        index.write(
            f"- {path.name}: {case.kind} {case.seed}, {outcome.step or '-'}: {outcome.symptom}\n"
        )
    return path


def _key(case: Case, outcome: Outcome) -> str:
    """Equal for failures that look like one cause: the symptom, and for values the program's shape."""
    symptom = outcome.symptom
    if outcome.kind == "wrong":
        names: dict[str, str] = {}
        statements = "\n".join(
            line for line in case.text.splitlines() if not re.match(r"program|size", line)
        )
        shape = re.sub(
            r"\b[a-zA-Z]\w*\b",
            lambda m: names.setdefault(m[0], m[0] if len(m[0]) > 2 else f"v{len(names)}"),
            statements,
        )
        tails = sorted({case.tail} if isinstance(case.tail, str) else set(case.tail.values()))
        symptom += normal(shape.replace("\n", "; ")) + str(tails) + outcome.step
    return sha256(f"{outcome.kind} {outcome.step} {symptom}".encode()).hexdigest()[:8]


def report(finding: Finding) -> str:
    """What a reader needs to see it happen."""
    case, outcome = finding.small, finding.outcome
    calls = {
        "uncut": "oc.compile(p)(…)", "run": f"{case.partition}.run(…)",
        "cut": f"oc.compile({case.partition}.loops)(…)",
        "strategy": f"oc.compile(result, inputs, strategy={case.strategy!r})(…)",
    }  # fmt: skip
    lines = [
        f"# {outcome.kind}: {outcome.symptom}",
        f"# call   {calls.get(outcome.step) or '; '.join(calls[s] for s in case.steps)}",
        f"# sizes  {[dict(s) for s in case.sizes]}, data: {case.data}"
        + (f", {case.where}" if case.where else ""),
        f"# from   {finding.case.kind} {finding.case.seed}, {outcome.seconds:.1f} s",
        "",
        case.text,
    ]
    if case.described:
        lines += ["# described", *(f"# {line}" for line in case.described.splitlines()), ""]
    lines += [f"# {line[:400]}" for line in outcome.detail.splitlines()[-30:]]
    lines += ["", f"# case {case.dump()}"]
    return "\n".join(lines) + "\n"
