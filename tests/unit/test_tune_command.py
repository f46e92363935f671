"""`offcut tune`: a program in a file, its schedule printed, its trials recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import offcut as oc
from offcut.tuning.campaign import LAST_RUN
from offcut.tuning.measuring.candidate import Bench
from tests.facade import app

SCALED = """\
program scaled
size n in 1:65
input A: float32[n, 24]
output B: float32[n, 24]
for i in 0:n
  for j in 0:24
    B[i, j] = A[i, j] * 2.0
"""
run = CliRunner().invoke


@pytest.mark.slow
def test_a_program_is_tuned_and_its_schedule_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "_check_noise", lambda bench, times: None)  # others may be at work
    program, records, out = (tmp_path / name for name in ("p.offcut", "r.sqlite", "s.txt"))
    program.write_text(SCALED, encoding="utf-8")
    options = ["--trials", "2", "--explorer", "random", "--price", "closed", "--seed", "3"]
    options += ["--records", str(records)]
    done = run(app, ["tune", str(program), "--sizes", "n=7", *options, "--out", str(out)])
    assert done.exit_code == 0, done.output
    found = oc.Schedule.parse(done.stdout)
    assert found == oc.Schedule.parse(out.read_text(encoding="utf-8"))
    assert oc.compile(oc.parse(SCALED), schedule=found).loops
    assert {record.explorer for record in oc.Records(records)} <= {"random", *LAST_RUN}
    assert {record.seed for record in oc.Records(records)} == {3}


def test_sizes_are_asked_for_in_the_words_of_the_command(tmp_path: Path) -> None:
    program = tmp_path / "p.offcut"
    program.write_text(SCALED, encoding="utf-8")
    done = run(app, ["tune", str(program)])
    assert (done.exit_code, done.stderr) == (
        2,
        """\
tune: cannot tune scaled for no sizes
  because  nothing says which values n take
  help     --sizes n=1,7,33
  help     --sizes n=1:512
""",
    )


def test_what_cannot_be_tuned_ends_with_status_2(tmp_path: Path) -> None:
    program = tmp_path / "p.offcut"
    program.write_text(SCALED, encoding="utf-8")
    done = run(app, ["tune", str(program), "--sizes", "n=99"])
    assert done.exit_code == 2
    assert "because  n is from 1 to 64" in done.output
