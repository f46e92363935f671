"""What a study's file refuses: the whole text, with the place in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

import offcut as oc
from offcut.errors import DescribeError
from offcut.studies import compare

HEAD = "[study]\n"
DENSE = '[[operators]]\neinsum = "mk,kn->mn"\nsizes = {m = [1, 3], k = 8, n = 16}\n'
AUTO = '[[contenders]]\nstrategy = "auto"\n'

REFUSED = {
    "a key that is none": (
        HEAD.replace("]", "]\nround = 3") + DENSE + AUTO,
        """\
study: cannot read the study
  at       study.toml, study
  because  there is no key 'round'
  help     rounds = …""",
    ),
    "no operators": (
        HEAD + AUTO,
        """\
study: cannot read the study
  at       study.toml
  because  it has no operators
  help     [[operators]]
einsum = "mk,kn->mn\"""",
    ),
    "an operator of two kinds": (
        HEAD + DENSE + 'op = "softmax"\n' + AUTO,
        """\
study: cannot read the study
  at       study.toml, operators[0]
  because  it has einsum and op of the keys einsum, op, program, model, describe, suite, and one is needed
  help     einsum = "mk,kn->mn"
  help     op = "softmax"
  help     suite = "dietcode\"""",
    ),
    "an axis without a size": (
        HEAD + DENSE.replace(", n = 16", "") + AUTO,
        """\
study: cannot read the study
  at       study.toml, operators[0].sizes
  because  the axis 'n' has no size
  help     the axes are m, k, n""",
    ),
    "a size of nothing": (
        HEAD + DENSE.replace("[1, 3]", "[0, 3]") + AUTO,
        """\
study: cannot read the study
  at       study.toml, operators[0].sizes.m
  because  0 is no size: sizes are whole numbers from 1 to 2**31 - 1
  help     m = 64
  help     m = [1, 7, 33]
  help     m = "1:512"
  help     m = "lengths.csv"
  help     m = {3 = 0.8, 17 = 0.2}""",
    ),
    "a column that is not there": (
        HEAD + DENSE.replace("[1, 3]", '{csv = "lengths.csv", column = "tokens"}') + AUTO,
        """\
study: cannot read the study
  at       study.toml, operators[0].sizes.m
  because  lengths.csv has no column 'tokens': its columns are m, t
  help     {csv = "lengths.csv", column = "…"}""",
    ),
    "a suite that is none": (
        HEAD + '[[operators]]\nsuite = "dietcod"\n' + AUTO,
        """\
study: cannot read the study
  at       study.toml, operators[0].suite
  because  there is no suite 'dietcod'
  help     did you mean dietcode?
  help     bert, deepbench, dietcode, llama2, mikpoly, polybench, resnet50, vta""",
    ),
    "a strategy that is none": (
        HEAD + DENSE + '[[contenders]]\nstrategy = "laddr"\n',
        """\
study: cannot read the study
  at       study.toml, contenders[0].strategy
  because  there is no 'laddr'; entry points of offcut.strategies: none
  help     "module:function", a file beside the study""",
    ),
    "a contender twice": (
        HEAD + DENSE + AUTO + AUTO,
        """\
study: cannot read the study
  at       study.toml
  because  two contenders are called 'auto'
  help     name = "…\"""",
    ),
    "a contraction that is none": (
        HEAD + DENSE.replace("mk,kn->mn", "mk,kn->mx") + AUTO,
        """\
study: cannot describe einsum = 'mk,kn->mx'
  at       study.toml, operators[0]
  because  the result has the axis 'x' and no operand has it
  help     "mk,kn->m\"""",
    ),
    "an operator that offcut lacks": (
        HEAD + '[[operators]]\nop = "softmx"\ninputs = {x = "m, 8"}\nsizes = {m = [1]}\n' + AUTO,
        """\
study: cannot read the study
  at       study.toml, operators[0].op
  because  there is no oc.ops.softmx
  help     did you mean softmax or log_softmax or sort?""",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_study_is_refused_by_its_place(name: str, tmp_path: Path) -> None:
    text, expected = REFUSED[name]
    (tmp_path / "lengths.csv").write_text("m,t\n1,2\n")
    (tmp_path / "study.toml").write_text(text)

    with pytest.raises(DescribeError) as refused:
        oc.study(tmp_path / "study.toml", tmp_path / "out")

    assert str(refused.value) == expected
    assert not (tmp_path / "out").exists()


def test_folders_without_samples_are_not_compared(tmp_path: Path) -> None:
    with pytest.raises(DescribeError) as refused:
        compare(tmp_path, tmp_path)

    assert (
        str(refused.value)
        == f"""\
study: cannot compare
  at       {tmp_path}
  because  it has no samples.jsonl with times
  help     a folder that offcut study wrote"""
    )
