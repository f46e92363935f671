"""Workers outlive what ends them: crashes and hangs are outcomes."""

from __future__ import annotations

from .case import Case
from .workers import Worker, place

READ = "program drawn\nsize n in 0:9\ninput A: int32[n]\noutput B: int32[n]\nfor i in 0:n\n  B[i] = A[i]\n"


def described(python: str) -> Case:
    """A case whose description runs `python`."""
    return Case("planted", 0, READ, described=python, steps=("strategy",), sizes=({"n": 3},))


def test_a_crash_a_hang_and_an_exception_are_told_and_the_next_case_is_checked() -> None:
    with Worker(seconds=0.5) as worker:
        assert worker.check(described("while True: pass")).kind == "late"
        worker.seconds = 600
        assert worker.check(Case("plain", 0, READ, sizes=({"n": 3},))).kind == "ok"
        crash = worker.check(described("import ctypes; ctypes.string_at(0)"))
        assert (crash.kind, crash.symptom[:7]) == ("crash", "SIGSEGV")
        assert worker.check(described("import os; os._exit(0)")).kind == "crash"
        error = worker.check(described("raise KeyError('x')"))
        assert (error.kind, error.step) == ("error", "strategy")
        assert worker.check(Case("plain", 1, READ, sizes=({"n": 0},))).kind == "ok"


def test_wrong_values_and_false_programs_are_told() -> None:
    turned = READ.replace("A[i]", "A[n - 1 - i]")
    python = (
        "n = oc.dim('n', max=8)\nA = oc.placeholder((n,), 'int32', name='A')\n"
        "result = oc.compute((n,), lambda i: A[i], name='B')\ninputs = [A]\n"
    )
    with Worker(seconds=600) as worker:
        assert worker.check(described(python)).kind == "ok"
        wrong = worker.check(described(python).with_(text=turned))
        assert (wrong.kind, wrong.step) == ("wrong", "strategy")
        false = Case("false", 0, READ.replace("A[i]", "A[i + 1]"), sizes=({"n": 3},))
        assert worker.check(false).kind == "skipped"


def test_the_place_of_a_crash_is_the_innermost_function() -> None:
    said = 'File "/x/numpy/a.py", line 1 in f\nFile "/x/offcut/core/b.py", line 2 in g\nFile "/x/offcut/c.py", line 3 in h'
    assert place(said) == "core/b.py:g < c.py:h"
