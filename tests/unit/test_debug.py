"""What environment variables ask offcut to say of its passes: on standard error, and in a folder."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import debug
from offcut.pipeline import PASSES
from tests.facade import forget_plans

SOURCES = Path(oc.__file__).parent
MASKED = """\
program masked
size n in 0:4097
input A: float32[n, 64]
inout B: float32[n, 64]
for i in 0:n
  for j in 0:64
    if i >= 2
      B[i, j] = A[i, j]
"""


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel is planned and built anew, and says nothing that is not asked."""
    forget_plans()
    monkeypatch.setenv("OFFCUT_CACHE", "off")
    for name in ("OFFCUT_DEBUG", "OFFCUT_DUMP"):
        monkeypatch.delenv(name, raising=False)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was said since the last time, without the times."""
    return re.sub(r"\d+\.\d ms", "… ms", capsys.readouterr().err).splitlines()


PASSES_OF_IT = ("raise", "bounds", "separate", "covers", "lanes")
AFTER = [
    *("after describe", "after bounds (unchanged)", "after separate", "after covers (unchanged)"),
    *("after rows (unchanged)", "after lanes", "after decide", "after prove (unchanged)"),
]


def test_a_level_or_a_name_says_passes_their_times_programs_and_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(asked: str | None) -> list[str]:
        if asked is not None:
            monkeypatch.setenv("OFFCUT_DEBUG", asked)
        forget_plans()
        oc.compile(oc.parse(MASKED))
        return said(capsys)

    assert told(None) == []
    names = (*PASSES_OF_IT, "prove", "lower", "microkernels", "compile", "load")
    assert told("1") == [f"offcut: {name}: … ms" for name in names]
    *heads, program = "\n".join(told("separate, bounds")).split("\n", 4)
    assert heads == [
        "offcut: bounds: … ms",
        "offcut: after bounds (unchanged)",
        "offcut: separate: … ms",
        "offcut: after separate",
    ]
    assert oc.prove_equal(oc.parse(MASKED), oc.parse(program))
    assert "if" not in program
    assert any(line.startswith("define") for line in told("lower"))
    assert [line for line in told("3") if "after" in line] == [f"offcut: {one}" for one in AFTER]


def test_the_program_after_each_pass_is_a_file_that_is_read_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "deep" / "dump"
    monkeypatch.setenv("OFFCUT_DUMP", str(folder))
    source = oc.parse(MASKED)
    oc.compile(source)
    files = sorted(folder.iterdir())
    names = [line.split()[1] for line in AFTER]
    assert [path.name for path in files] == [f"00{k}_{n}.offcut" for k, n in enumerate(names, 1)]
    assert files[1].read_text().startswith("# after bounds (unchanged)\nprogram masked\n")
    assert files[2].read_text().startswith("# after separate\nprogram masked\n")
    for path in files:
        assert oc.prove_equal(source, oc.parse(path.read_text()))


def test_a_described_tensor_is_dumped_behind_what_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "041_separate.offcut").write_text("")
    (tmp_path / "999.txt").write_text("")
    monkeypatch.setenv("OFFCUT_DUMP", str(tmp_path))
    n, k = oc.dim("n", max=64), oc.reduce_axis(24, name="k")
    A, W = oc.placeholder((n, 24), name="A"), oc.placeholder((24, 40), name="W")
    C = oc.compute((n, 40), lambda i, j: oc.sum(A[i, k] * W[k, j], axis=k), name="dumped")
    kernel = oc.compile(C)
    names = sorted(path.name for path in tmp_path.iterdir())[1:-1]
    passes = ("042_describe", "043_cut", "044_rows", "045_decide", "046_prove")
    assert names == [f"{name}.offcut" for name in passes]
    a, w = np.ones((3, 24), "float32"), np.ones((24, 40), "float32")
    for name in names:
        program = oc.parse((tmp_path / name).read_text())
        np.testing.assert_array_equal(program.run({"A": a, "W": w}), kernel(a, w))


@pytest.mark.parametrize("text", ["loud", "1,seperate", "-1", "5", "3.5"])
def test_what_is_no_level_and_no_pass_is_refused_at_first_use(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("OFFCUT_DEBUG", text)
    with rejection(f"""\
TargetError: OFFCUT_DEBUG: cannot say anything of {text.split(",")[-1]!r}
  because  it is neither a level in 0…4 nor a pass
  help     OFFCUT_DEBUG=3
  help     OFFCUT_DEBUG=1,separate
  help     passes: {", ".join(debug.PASSES)}"""):
        oc.compile(oc.parse(MASKED))


def test_what_is_no_answer_to_verify_is_refused_at_first_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OFFCUT_VERIFY", "yes")
    A = oc.placeholder((oc.dim("n"),), name="A")
    with rejection("""\
TargetError: OFFCUT_VERIFY: cannot take 'yes'
  because  it is 1, or 0 as if it were unset
  help     OFFCUT_VERIFY=1"""):
        oc.compile(oc.compute(A.shape, lambda i: A[i] * 2.0, name="unverified"))


def test_a_folder_that_cannot_be_written_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("OFFCUT_DUMP", str(file))
    with rejection(f"""\
TargetError: OFFCUT_DUMP: cannot write into {file}
  because  File exists
  help     a folder of yours, such as OFFCUT_DUMP=dump"""):
        oc.compile(oc.parse(MASKED))


def test_every_pass_of_the_package_can_be_named() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    named = set(re.findall(r'debug\.(?:timed|passed)\("([^"]*)"', text))
    common = {one.name for one in PASSES}
    marks = {"rows", "lanes", "threads"}  # of a schedule
    assert named | common | marks == set(debug.PASSES)


def test_passes_take_what_those_before_them_give() -> None:
    known = {"output", "inputs", "constants", "options"}
    for one in PASSES:
        assert {*one.takes} <= known, one
        assert one.theorem
        known.add(one.gives)


def test_a_kernel_says_which_passes_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    source = oc.parse(MASKED)
    passes = oc.compile(source).passes
    common = [step for step in passes if not step.inside]
    names = ["describe", "choose", "decide", "prove", "lower", "load"]
    assert [step.name for step in common] == names
    assert all(step.seconds is not None and step.seconds >= 0 for step in passes if not step.inside)
    inner = [step.name for step in passes if step.inside]
    assert inner.index("bounds") < inner.index("separate") < inner.index("lanes")
    for step in passes:
        if step.program is not None:
            assert oc.prove_equal(source, step.program)
    assert passes["separate"].program != source
    assert str(passes).splitlines()[0].split() == ["pass", "ms", "loops", "proves"]


def test_the_passes_of_a_kernel_whose_code_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path))
    for target in ("interpret", "interpret"):
        kernel = oc.compile(oc.parse(MASKED), target=target)
    assert "decide" not in [step.name for step in kernel.code.log]
    assert kernel.passes["decide"].program == kernel.loops
