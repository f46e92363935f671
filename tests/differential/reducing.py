"""Makes a case that fails small, as long as it fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import offcut as oc
from tests.facade import Reduction, normal, shrunk, simpler, simpler_cuts

from .case import Case, Outcome
from .reading import read

Check = Callable[[Case], Outcome]


@dataclass(frozen=True)
class Finding:
    """A case that failed, the same made small, and how that fails."""

    case: Case
    small: Case
    outcome: Outcome


def reduced(case: Case, outcome: Outcome, check: Check) -> Case:
    """`case` made smaller step by step, while its outcome is of the same kind and symptom."""
    return shrunk(case, _smaller, lambda one: check(one).alike(outcome), Case.dump)


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
    yield from _simpler_requests(case)
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


def _simpler_requests(case: Case) -> Iterator[Case]:
    """`case` with a simpler program, which is the text's to say unless it is described, or a simpler cut."""
    if case.described:
        for tile, tail in simpler_cuts(case.tile, case.tail):
            yield case.with_(tile=tile, tail=tail)
        return
    for request in simpler(Reduction(oc.parse(case.text), case.tile, case.tail)):
        names = {size.name for size in request.program.sizes}
        sizes = tuple({n: v for n, v in one.items() if n in names} for one in case.sizes)
        text = f"{request.program}\n"
        yield case.with_(text=text, tile=request.tile, tail=request.tail, sizes=sizes)


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
