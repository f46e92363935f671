"""The proof that reads two programs side by side: what it accepts is equal, and it accepts what is cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pytest

import offcut as oc
from offcut.core.interpret.values import evaluate
from offcut.core.program import Kind, Program
from offcut.errors import OffcutError
from offcut.proof.by_structure.places import NotStructural
from offcut.proof.by_structure.structure import check_structure

GEMM = """\
program gemm
size n in 0:60
size m in 0:60
size K in 0:60
input A: int32[n, K]
input B: int32[K, m]
output C: int32[n, m]
for i in 0:n
  for j in 0:m
    C[i, j] = 0
    for k in 0:K
      C[i, j] += A[i, k] * B[k, j]
"""
CONVOLUTION = """\
program convolution
size n in 0:60
size m in 0:60
input X: int32[n, m]
input W: int32[3, 3]
output C: int32[n, m]
for i in 0:n
  for j in 0:m
    C[i, j] = 0
    for r in 0:3
      for s in 0:3
        C[i, j] += where(i + r >= 1 and i + r <= n and j + s >= 1 and j + s <= m, X[i + r - 1, j + s - 1] * W[r, s], 0)
"""
SWEEP = """\
program sweep
size T in 0:9
size n in 0:60
inout A: int32[n]
inout B: int32[n]
for t in 0:T
  for i in 1:n - 1
    B[i] = A[i - 1] + A[i + 1]
  for i in 1:n - 1
    A[i] = B[i - 1] - B[i]
"""
PREFIX = """\
program prefix
size n in 0:60
input A: int32[n]
inout C: int32[n + 1]
for i in 0:n
  C[i + 1] += C[i] * 3 + A[i]
"""
PROGRAMS: dict[str, tuple[str, dict[str, int], str]] = {
    **{
        f"gemm {tail}": (GEMM, {"i": 3, "j": 4}, tail)
        for tail in (
            *("cut", "guard", "mask", "pad", "shift", "ladder", "balance"),
            *("even", "residue", "version"),
        )
    },
    **{
        f"gemm k {tail}": (GEMM, {"k": 3}, tail)
        for tail in (
            *("cut", "guard", "mask", "pad", "ladder", "balance"),
            *("even", "residue", "version"),
        )
    },
    "convolution": (CONVOLUTION, {"i": 3, "j": 4}, "mask"),
    "convolution uncut": (CONVOLUTION, {}, "cut"),
    "sweep": (SWEEP, {"B.i": 3, "A.i": 4}, "balance"),
    "sweep by time": (SWEEP, {"t": 2}, "version"),
    "sweep by time and rest": (SWEEP, {"t": 3}, "residue"),
    "prefix": (PREFIX, {"i": 4}, "ladder"),
}


def cut(name: str) -> oc.Program:
    text, tile, tail = PROGRAMS[name]
    return oc.partition(oc.parse(text), tile=tile, tail=tail).loops


def outputs(program: Program, sizes: Mapping[str, int]) -> list[npt.NDArray[np.int32]]:
    """What the interpreter gives for fixed pseudo-random inputs."""
    rng = np.random.default_rng(7)
    given = {
        b.name: rng.integers(-99, 99, [int(evaluate(e, sizes)) for e in b.shape], np.int32)
        for b in program.buffers
        if b.kind in (Kind.INPUT, Kind.INOUT)
    }
    found = program.run(given, **sizes)
    return list(found) if isinstance(found, tuple) else [found]


def differ(one: Program, other: Program) -> bool:
    """Whether two programs differ at some small size; one that cannot run there does."""
    names = [size.name for size in one.sizes]
    for n in (0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 13):
        for m in (n, max(0, n - 3), 2):
            sizes = {name: (n, m, 5)[k] for k, name in enumerate(names)}
            if "T" in sizes:
                sizes = {"T": 2, "n": n}
            try:
                pairs = zip(outputs(one, sizes), outputs(other, sizes), strict=True)
                if any(not np.array_equal(a, b) for a, b in pairs):
                    return True
            except (OffcutError, ValueError, IndexError):
                return True
    return False


def mutants(text: str) -> Iterator[str]:
    """`text` with one literal, comparison, or statement of its body changed."""
    head, body = re.split(r"(?m)^(?=for|if|tile|let)", text, maxsplit=1)
    for found in re.finditer(r"(?<![\w.])\d+(?![\w.])", body):
        for new in (int(found[0]) + 1, int(found[0]) - 1):
            if new >= 0:
                yield head + body[: found.start()] + str(new) + body[found.end() :]
    for old, new in (("<=", "<"), (" < ", " <= "), ("+=", "="), (" + ", " - "), (" - ", " + ")):
        for found in re.finditer(re.escape(old), body):
            yield head + body[: found.start()] + new + body[found.end() :]
    lines = body.rstrip().split("\n")
    for k, line in enumerate(lines):
        if re.match(r"\s*\w+\[", line):
            yield head + "\n".join([*lines[:k], *lines[k + 1 :]])
            if k + 1 < len(lines) and re.match(r"\s*\w+\[", lines[k + 1]):
                swapped = [*lines[:k], lines[k + 1], line, *lines[k + 2 :]]
                yield head + "\n".join(swapped)


def accepted(source: Program, emitted: Program) -> bool:
    try:
        check_structure(source, emitted)
    except NotStructural:
        return False
    return True


@pytest.mark.every(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_cut_is_accepted(name: str) -> None:
    source = oc.parse(PROGRAMS[name][0])
    assert accepted(source, cut(name))
    assert not differ(source, cut(name))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "prefix" else pytest.mark.slow) for name in PROGRAMS],
)
def test_a_mutant_that_is_accepted_is_equal(name: str) -> None:
    """An equivalent mutant may be accepted; one that computes something else never is."""
    source, text = oc.parse(PROGRAMS[name][0]), str(cut(name))
    refused = 0
    for mutant in mutants(text):
        try:
            emitted = oc.parse(mutant)
        except OffcutError:
            continue
        if accepted(source, emitted):
            assert not differ(source, emitted), mutant
        else:
            refused += 1
    assert refused > 10


HEAD = "program p\nsize n in 1:40\n"
EQUAL = {
    "a loop that carries nothing runs once for each statement inside": (
        "input A: int32[n]\noutput B: int32[n]\noutput C: int32[n]\nfor i in 0:n\n"
        "  B[i] = A[i]\n  C[i] = B[i] + 1\n",
        "input A: int32[n]\noutput B: int32[n]\noutput C: int32[n]\nfor i in 0:n\n  B[i] = A[i]\n"
        "for t in 0:n\n  tile i in t +: 1\n    C[i] = B[i] + 1\n",
    ),
    "a loop around the parts of another one is in the tiles of each part": (
        "output B: int32[n, n]\nfor i in 0:n\n  for j in 0:1\n    B[i, j] = 1\n"
        "  for j in 1:n\n    B[i, j] = 2\n",
        "output B: int32[n, n]\ntile i in 0 +: n, j in 0 +: 1\n  B[i, j] = 1\n"
        "tile i in 0 +: n, j in 1 +: n - 1\n  B[i, j] = 2\n",
    ),
    "bounds that memory holds stay around what is cut inside and outside": (
        "input S: int32[n]\ninput V: int32[n]\ninout O: int32[n]\nfor i in 0:n\n"
        "  for j in index(S[i]):n\n    O[i] += V[i]\n",
        "input S: int32[n]\ninput V: int32[n]\ninout O: int32[n]\nfor t in 0:n\n"
        "  tile i in t +: 1\n    for j in index(S[i]):n\n      O[i] += V[i]\n",
    ),
}
UNEQUAL = {
    "a loop that carries a dependence runs once for each statement inside": (
        "inout B: int32[n + 1]\ninout C: int32[n]\nfor i in 0:n\n"
        "  B[i + 1] = C[i]\n  C[i] = B[i]\n",
        "inout B: int32[n + 1]\ninout C: int32[n]\nfor i in 0:n\n  B[i + 1] = C[i]\n"
        "for i in 0:n\n  C[i] = B[i] + 0\n",
        r".",
    ),
    "bounds that a statement inside writes are read again by a second loop": (
        "inout S: int32[n]\noutput C: int32[n]\nfor i in 0:n\n  for j in index(S[i]):1\n"
        "    if j >= 0\n      S[i] = 1\n    if j >= 0\n      C[i] = 1\n",
        "inout S: int32[n]\noutput C: int32[n]\nfor i in 0:n\n  for j in index(S[i]):1\n"
        "    if j >= 0\n      S[i] = 1\nfor i in 0:n\n  for j in index(S[i]):1\n"
        "    if j >= 0\n      C[i] = 1\n",
        r".",
    ),
    "two nests in one loop over tiles run in turn": (
        "input A: int32[16]\ninout s: int32[1]\nfor i in 0:16\n  s[0] = s[0] * 2 + A[i]\n",
        "input A: int32[16]\ninout s: int32[1]\nfor t in 0:2\n  for i in 4*t:4*t + 4\n"
        "    s[0] = s[0] * 2 + A[i]\n  for i in 8 + 4*t:12 + 4*t\n    s[0] = s[0] * 2 + A[i]\n",
        r"reads s\[0\] of .* \(i = 11\), not of .* \(i = 3\)$",
    ),
    "a shifted tile repeats an update beside an assignment": (
        "input A: int32[n]\ninout C: int32[2*n]\nassume n >= 8\nfor i in 0:n\n"
        "  C[2*i] = A[i]\n  C[2*i + 1] += 1\n",
        "input A: int32[n]\ninout C: int32[2*n]\nassume n >= 8\nfor t in 0:n//8\n"
        "  tile i in 8*t +: 8\n    C[2*i] = A[i]\n    C[2*i + 1] += 1\n"
        "tile i in n - 8 +: 8  @shift\n  C[2*i] = A[i]\n  C[2*i + 1] += 1\n",
        r"C\[1\] \+= 1 \(i = 0\) reads C\[1\] of C\[1\] \+= 1 \(i = 0\), not of the initial C\[1\]$",
    ),
    "a shifted tile asks again what it has changed": (
        "inout E: int32[n]\noutput F: int32[n]\nassume n >= 8\nfor i in 0:n\n"
        "  F[i] = 0\n  if E[i] < 100\n    F[i] = 1\n  E[i] = 700\n",
        "inout E: int32[n]\noutput F: int32[n]\nassume n >= 8\nfor t in 0:n//8\n"
        "  tile i in 8*t +: 8\n    F[i] = 0\n    if E[i] < 100\n      F[i] = 1\n    E[i] = 700\n"
        "tile i in n - 8 +: 8  @shift\n  F[i] = 0\n  if E[i] < 100\n    F[i] = 1\n  E[i] = 700\n",
        r"^E\[i\] < 100 reads E, which the program writes, .* when it is evaluated",
    ),
    "a masked instance leaves the array": (
        "input A: int32[n]\ninout C: int32[n]\nfor i in 0:n\n  C[i] += A[i]\n",
        "input A: int32[n]\ninout C: int32[n]\nfor i in 0:n + 8\n  C[i] += where(i < n, A[i], 0)\n",
        r"C\[1\] \+= A\[1\] \(i = 1\) touches C\[1\], outside C of shape \(n\)$",
    ),
    "a condition is asked before what changes it": (
        "inout y: int32[n]\ninout f: int32[1]\nfor i in 0:n\n  if f[0] > 0\n    y[i] = 1\n    f[0] = 0\n",
        "inout y: int32[n]\ninout f: int32[1]\nif f[0] > 0\n  for i in 0:n\n    y[i] = 1\n    f[0] = 0\n",
        r"^f\[0\] > 0 reads f, which the program writes, .* when it is evaluated",
    ),
    "a condition reads past the array": (
        "input A: int32[n]\ninout B: int32[n]\nfor i in 0:n\n  if A[i] > 0\n    B[i] = 2\n",
        "input A: int32[n]\ninout B: int32[n]\nfor i in 0:n + 1\n  if A[i] > 0 and i < n\n    B[i] = 2\n",
        r"A\[i\] is \[1\], which lies outside of its array$",
    ),
    "iterations at once that need each other": (
        "input A: int32[n]\ninout s: int32[1]\nfor i in 0:n\n  s[0] = s[0] * 2 + A[i]\n",
        "input A: int32[n]\ninout s: int32[1]\nfor i in 0:n  @thread\n  s[0] = s[0] * 2 + A[i]\n",
        r"at i = 0 writes what the instance i = 1 overwrites$",
    ),
}


@pytest.mark.parametrize("what", EQUAL)
def test_programs_that_are_equal_side_by_side_are_accepted(what: str) -> None:
    source, emitted = (oc.parse(HEAD + text) for text in EQUAL[what])
    assert accepted(source, emitted)


@pytest.mark.parametrize("what", UNEQUAL)
def test_programs_that_differ_are_refused(what: str) -> None:
    *texts, because = UNEQUAL[what]
    source, emitted = (
        oc.parse(HEAD + "".join(sorted(text.splitlines(keepends=True), key=_declares_first)))
        for text in texts
    )
    if "at once" not in what:
        assert not accepted(source, emitted)
    with pytest.raises(oc.PartitionError) as refused:
        oc.prove_equal(source, emitted)
    assert re.search(because, refused.value.because)


def _declares_first(line: str) -> int:
    """Promises stand before buffers; the other lines stay where they are."""
    return 0 if line.startswith("assume") else 1


def test_a_zero_is_added_to_what_the_caller_gave() -> None:
    text = (
        "size n in 1:40\ninput A: float32[n]\ninout C: float32[n]\n"
        "C[0] = 0.0\nfor i in 0:n\n  C[i] += where(i < 1, A[i], 0.0)\n"
    )
    given = {"A": np.ones(3, np.float32), "C": np.full(3, -0.0, np.float32)}
    wanted = oc.parse(text).run(given)
    assert np.signbit(oc.partition(oc.parse(text)).run(given)).tolist() == [False] * 3
    assert wanted.tobytes() == oc.partition(oc.parse(text)).run(given).tobytes()


def test_a_zero_is_added_to_what_a_minimum_has_left() -> None:
    text = (
        "size n in 1:40\ninput A: float32[n]\noutput C: float32[n]\nfor i in 0:n\n  C[i] = 0.0\n"
        "  C[i] min= A[i]\n  C[i] += where(i < n, 0.0, A[i])\n"
    )
    given = {"A": np.array([-0.0, 1.0], np.float32)}
    wanted = oc.parse(text).run(given)
    assert not np.signbit(wanted).any()
    assert wanted.tobytes() == oc.partition(oc.parse(text)).run(given).tobytes()
    assert not accepted(oc.parse(text), oc.parse("".join(text.splitlines(keepends=True)[:-1])))
