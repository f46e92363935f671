"""What a study's file refuses: the whole text, with the place in the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut.errors import DescribeError
from offcut.studies import compare
from offcut.studies.definition import read_definition
from offcut.studies.samples import FILE

HEAD = "[study]\n"
DENSE = '[[operators]]\neinsum = "mk,kn->mn"\nsizes = {m = [1, 3], k = 8, n = 16}\n'
LAYERNORM = '[[operators]]\nop = "layernorm"\ninputs = {x = "m, n", gain = "n", bias = "n"}\nsizes = {m = [3], n = 8}\n'
AUTO = '[[contenders]]\nstrategy = "auto"\n'

MINE = """
PRICE = 3
RULES = []
def leave():
    import os
    os._exit(3)
def broken():
    raise KeyError("mine")
def number():
    return 1, 2, 3
class Own:
    __slots__ = ()
    def task(self, sizes, seed):
        pass
    def compiled(self, options):
        pass
def halves(axis):
    yield axis.full()
    yield axis.fixed(1)
def ladder(axis):
    yield axis.full()
"""

REFUSED = refusals(
    r"""
given HEAD.replace(']', ']\nround = 3') + DENSE + AUTO, 'study'
there is no key 'round'
  help     rounds = …

given HEAD + AUTO, ''
it has no operators
  help     [[operators]]
einsum = "mk,kn->mn"

given HEAD + DENSE + 'op = "softmax"\n' + AUTO, 'operator 1'
it has einsum and op of the keys einsum, op, program, model, describe, suite, and one is needed
  help     einsum = "mk,kn->mn"
  help     op = "softmax"
  help     suite = "dietcode"

given HEAD + DENSE.replace(', n = 16', '') + AUTO, 'operator 1, sizes'
the axis 'n' has no size
  help     the axes are m, k, n

given HEAD + DENSE.replace('[1, 3]', '[0, 3]') + AUTO, 'operator 1, sizes.m'
0 is not a size: sizes are whole numbers from 1 to 2**31 - 1
  help     m = 64
  help     m = [1, 7, 33]
  help     m = "1:512"
  help     m = "lengths.csv"
  help     m = {3 = 0.8, 17 = 0.2}

given HEAD + DENSE.replace('[1, 3]', '{csv = "lengths.csv", column = "tokens"}') + AUTO, 'operator 1, sizes.m'
lengths.csv has no column 'tokens': its columns are m, t
  help     {csv = "lengths.csv", column = "…"}

given HEAD + '[[operators]]\nsuite = "dietcod"\n' + AUTO, 'operator 1, suite'
there is no suite 'dietcod'
  help     did you mean dietcode?
  help     bert, deepbench, dietcode, llama2, mikpoly, polybench, resnet50, vta

given HEAD + DENSE + '[[contenders]]\nstrategy = "laddr"\n', 'contender 1, strategy'
there is no 'laddr'; entry points of offcut.strategies: none
  help     did you mean ladder?
  help     "module:function", a file beside the study

given HEAD + DENSE + '[[contenders]]\npeer = "nump"\n', 'contender 1, peer'
there is no 'nump'; entry points of offcut.peers: none
  help     did you mean numpy or numba?
  help     "module:function", a file beside the study

given HEAD + DENSE + AUTO + '[[contenders]]\npeer = "numpy"\nname = "a\\tb\\n c"\n', 'contenders'
'a\tb\n c' is not a name that a table can show in a line
  help     name = "a b c"

given HEAD + DENSE + 'name = " "\n' + AUTO, 'operators'
' ' is not a name that a table can show in a line
  help     name = "operator"

given HEAD + '[[operators]]\nsuite = "bert"\nonly = "("\n' + AUTO, 'operator 1, only'
'(' is not a regular expression: missing ), unterminated subpattern at position 0
  help     only = '\('

given HEAD + DENSE + AUTO + AUTO, 'contenders'
two contenders are called 'auto'
  help     name = "…"

given HEAD + '[[operators]]\ndescribe = "mine:number"\n' + AUTO, 'operator 1, describe'
it gave (1, 2, 3)
  help     return output, [A, B]

given HEAD + '[[operators]]\ndescribe = "mine:Own"\ntolerance = 0.1\n' + AUTO, 'operator 1, tolerance'
mine:Own gives a workload, whose tasks say how far a result may be off
  help     Exact(values, tolerance, by), of its task

given HEAD + DENSE + ''.join((f'[[contenders]]\nstrategy = "{name}:halves"\n' for name in ('mine', 'theirs'))), ''
two strategies are called 'halves': mine:halves and theirs:halves
  help     rename one

given HEAD + 'seconds_per_cell = 1e300\n' + DENSE + AUTO, 'study.seconds_per_cell'
1e+300 is not a number from 0.0001 to 86400
  help     seconds_per_cell = 0.3

given HEAD + 'threads = 100000\n' + DENSE + AUTO, 'study.threads'
100000 is not a whole number from 1 to 1024
  help     threads = 1

given HEAD + '[[operators]]\nmodel = "mine:PRICE"\n' + AUTO, 'operator 1, model'
mine:PRICE is int, not a function
  help     "module:function" of its arguments, which returns a model

given HEAD + '[[operators]]\nmodel = "mine:number"\narguments = {layers = 2}\n' + AUTO, 'operator 1, arguments'
number: got an unexpected keyword argument 'layers'
  help     number()

given HEAD + '[[operators]]\nmodel = "lengths.csv"\n' + AUTO, 'operator 1, model'
lengths.csv is not an ONNX model
  help     a file that onnx.save wrote, or another exporter

given HEAD + DENSE.replace('[1, 3]', '"requests.csv"') + AUTO, 'operator 1, sizes.m'
requests.csv, line 5: 'x' is not a whole number from 1 to 2**31 - 1
  help     a whole number in each line

given HEAD + DENSE + 'values = {C = "positive"}\n' + AUTO, 'operator 1, values'
there is no input 'C'
  help     the inputs are A, B

given HEAD + DENSE + AUTO + '[[goals]]\nover = "torch"\nmean = 1.1\n', 'goal 1, over'
there is no contender 'torch'
  help     auto

given HEAD + DENSE + AUTO + '[[goals]]\nreference = 3\n', 'goal 1, reference'
3 is neither sizes nor an operator
  help     reference = {m = 1024} or reference = "another operator"

given HEAD + DENSE + AUTO + '[[goals]]\nmean = 1.0\n[[goals]]\noperators = "sparse"\nworst = 0.9\n', 'goal 2, operators'
no operator has 'sparse' in its name
  help     mk,kn->mn

given HEAD + DENSE + AUTO + '[[contenders]]\npeer = "numpy"\n[[goals]]\nmean = 1.0\n[[goals]]\nover = "numpy"\n', 'goal 2'
it has no threshold
  help     mean = …
  help     worst = …
  help     share = …
  help     regret = …

given HEAD + LAYERNORM.replace('bias', 'bais') + AUTO, 'operator 1, inputs.bais'
oc.ops.layernorm has no parameter 'bais'
  help     bias = …

given HEAD + LAYERNORM.replace('bias', 'shift').replace('gain', 'bias') + AUTO, 'operator 1, inputs.bias'
'bias' would be the parameter 'gain': where a name is no parameter's, inputs are parameters in order
  help     the parameters are x, gain, bias, epsilon, name

given HEAD + 'processes = 99999999999\n' + DENSE + AUTO, 'study.processes'
99999999999 is not a whole number from 1 to 1000
  help     processes = 7

given HEAD + '[[operators]]\neinsum = "mk,kn->mn"\nsizes = "huge.csv"\n' + AUTO, 'operator 1, sizes'
huge.csv, line 2: '99999999999999999999' in column 'm' is not a whole number from 1 to 2**31 - 1
  help     a whole number in each line
  help     {csv = "huge.csv", columns = {k = "k", n = "n"}}

given HEAD + '[[operators]]\neinsum = "mk,kn->mn"\nsizes = "layers.csv"\n' + AUTO, 'operator 1, sizes'
layers.csv, line 2: 'first' in column 'layer' is not a whole number from 1 to 2**31 - 1
  help     a whole number in each line
  help     {csv = "layers.csv", columns = {M = "M", k = "k", n = "n"}}
  help     {csv = "layers.csv", names = "layer"}, layers by name

given HEAD + '[[operators]]\neinsum = "mk,kn->mn"\nsizes = {csv = "layers.csv", columns = {m = "m", k = "k", n = "n"}}\n' + AUTO, 'operator 1, sizes'
layers.csv has no columns 'm' for m: its columns are layer, M, k, n
  help     {csv = "layers.csv", columns = {m = "M", k = "k", n = "n"}}

given HEAD + DENSE + AUTO + '[[goals]]\nreference = {m = 99}\nworst = 0.9\n', 'goal 1, reference'
no operator of the goal is measured at these sizes
  help     mk,kn->mn is measured at m = 1, k = 8, n = 16

given HEAD + DENSE + AUTO + '[[goals]]\nreference = "dens"\nmean = 1.0\n', 'goal 1, reference'
there is no operator 'dens'
  help     mk,kn->mn

given HEAD + DENSE + AUTO + '[[contenders]]\nstrategy = "cut"\nonly = "sparse"\n', 'contender 2, only'
no operator has 'sparse' in its name
  help     mk,kn->mn

given HEAD + DENSE + AUTO + '[[goals]]\nshare = 0.5\n', 'goal 1, share'
a share of the machine's limit needs the limits
  help     limits = true, in [study]

given HEAD + 'name = "my study"\n' + DENSE + AUTO, 'study.name'
'my study' is not a name of letters, digits, hyphens, underscores and dots, as the study's folder has
  help     name = "study"

given HEAD + DENSE + 'bounds = {m = "a"}\n' + AUTO, 'operator 1, bounds.m'
'a' is not a whole number from 3 on, the greatest size
  help     bounds = {m = 3}

given HEAD + '[[operators]]\nsuite = "gone.toml"\n' + AUTO, 'operator 1, suite'
there is no file gone.toml
  help     suite = "dietcode"

given HEAD + DENSE + '[[contenders]]\nqqq = 1\n', 'contender 1'
there is no key 'qqq'
  help     the keys are name, strategy, schedule, price, microkernels, rules, threads, frontend, target, machine, device, machine_fields, replan, reassociate, hiding, tune, draw, peer, function, measure, only, each

given HEAD + DENSE + AUTO + '[short]\noperators = "sparse"\n', 'short.operators'
no operator has 'sparse' in its name
  help     mk,kn->mn

given HEAD + 'limits = 1\n' + DENSE + AUTO, 'study.limits'
1 is neither true nor false
  help     limits = true

given HEAD + DENSE.replace('k = 8', 'k = 8, "m, n" = [3]') + AUTO, 'operator 1, sizes'
the axis 'm' has sizes twice
  help     "m, n" alone

given HEAD + DENSE + '[[contenders]]\nfrontend = "tflite"\n', 'contender 1, frontend'
there is no frontend 'tflite'
  help     torch, onnx

given HEAD + '[[operators]]\nop = "softmx"\ninputs = {x = "m, 8"}\nsizes = {m = [1]}\n' + AUTO, 'operator 1, op'
there is no oc.ops.softmx
  help     did you mean softmax or log_softmax or sort?

given HEAD + DENSE + 'values = {A = "positiv"}\n' + AUTO, 'operator 1, values.A'
'positiv' draws nothing
  help     normal
  help     positive
  help     small
  help     dominant
  help     definite
  help     "0:30521" of whole numbers

given HEAD + DENSE + '[[contenders]]\nprice = "mine:PRICE"\n', 'contender 1, price'
mine:PRICE is int, not a function
  help     "module:function" of the loops of a variant, sizes, and the built-in price

given HEAD + DENSE + '[[contenders]]\ntune = {features = ["mine:PRICE"]}\n', 'contender 1, tune.features'
mine:PRICE is int, not a function
  help     "module:function" of a case of a search

given HEAD + DENSE + '[[contenders]]\ntune = {price = "learnd"}\n', 'contender 1, tune.price'
there is no 'learnd'; entry points of offcut.prices: none
  help     did you mean learned?
  help     "module:function", a file beside the study

given HEAD + DENSE + '[[contenders]]\nstrategy = "cut"\neach = {"strategy.x" = ["cut"]}\n', 'contender 1, each'
'strategy' is 'cut', and not a table that 'strategy.x' leads into
  help     each = {strategy = ["cut", "mask"]}

given HEAD + DENSE + AUTO + '[[contenders]]\nname = "ours"\neach = {strategy = ["cut", "laddr"]}\n', "contender 'ours', each.strategy"
there is no 'laddr'; entry points of offcut.strategies: none
  help     did you mean ladder?
  help     "module:function", a file beside the study

given HEAD + DENSE + '[[contenders]]\ntarget = "vta"\neach = {"tune.trials" = [16, 0]}\ntune = {price = "closed"}\n', 'contender 1, each.tune.trials'
0 is not a whole number from 1 on
  help     trials = 64

given HEAD + DENSE + '[[contenders]]\neach = {strategy = ["cut", "mask"]}\n[[contenders]]\npeer = "numpy"\nthread = 2\n', 'contender 2'
there is no key 'thread'
  help     threads = …

given HEAD + '[[operators]]\nsuite = "bert"\ntype = "int4"\n' + AUTO, "operator 1, suite bert, operator 'qkv', type"
there is no contraction of 'int4'
  help     float64, float32, float16, bfloat16, int8, uint8

given HEAD + DENSE + '[[contenders]]\nmicrokernels = "mine:PRICE"\n', 'contender 1, microkernels'
mine:PRICE is int, not a microkernel
  help     oc.external_microkernel(…), or a list of these

given HEAD + DENSE + '[[contenders]]\nrules = "mine:PRICE"\n', 'contender 1, rules'
mine:PRICE is int, not a rule
  help     offcut.graph.rule(name, before, after), or a list of these

given HEAD + DENSE + '[[contenders]]\nrules = "mine:RULES"\n', 'contender 1, rules'
mk,kn->mn is one kernel, and rules rewrite the graph of a model
  help     only = '…', the operators that are models
""",
    globals(),
)
# What others refuse of it.
REFUSED_IN_FULL = refusals(
    r"""
given HEAD + DENSE.replace('mk,kn->mn', 'mk,kn->mx') + AUTO
study: cannot describe einsum = 'mk,kn->mx'
  at       study.toml, operator 1
  because  the result has the axis 'x' and no operand has it
  help     "mk,kn->m"

given HEAD + '[[operators]]\ndescribe = "mine:broken"\n' + AUTO
study: cannot describe describe = 'mine:broken'
  at       study.toml, operator 1
  because  KeyError: 'mine'
  help     a function of the sizes by name that returns output, [A, B]

given HEAD + DENSE + '[[contenders]]\nstrategy = "mine:ladder"\n'
study: cannot take the strategy 'mine:ladder'
  at       study.toml, contender 1, strategy
  because  offcut has a strategy of that name
  help     @oc.strategy("halve")

given HEAD + DENSE.replace('mk,kn->mn', 'mk,kn>mn') + AUTO
study: cannot describe einsum = 'mk,kn>mn'
  at       study.toml, operator 1
  because  it has no '->'
  help     "mk,kn->mn"

given HEAD + DENSE.replace('mk,kn->mn', '') + AUTO
study: cannot describe einsum = ''
  at       study.toml, operator 1
  because  it is empty
  help     "mk,kn->mn": a letter per axis, a comma

given HEAD + '[[operators]\n' + AUTO
study: cannot read the file
  at       FOLDER/study.toml
  because  Expected ']]' at the end of an array declaration (at line 2, column 12)
  help     key = value, [table] or [[list]]

given HEAD + DENSE + '[[contenders]]\npeer = "mine:numbr"\n'
study: cannot load 'mine:numbr'
  at       study.toml, contender 1, peer
  because  mine has no 'numbr'
  help     did you mean number?

given HEAD + DENSE + '[[contenders]]\ntarget = "cpux"\n'
study: cannot plan for 'cpux'
  at       study.toml, contender 1, target
  because  there is no such target
  help     target="accelerator", target="cpu", target="cuda", target="gemmini", target="interpret", target="vta", target="vta-osdi18"

given HEAD + DENSE + '[[contenders]]\ntarget = "cpu"\nmachine = "zen5"\nmachine_fields = {unit = {9 = {rows = 2}}}\n'
study: cannot change the machine
  at       study.toml, contender 1, machine_fields
  because  the description has no '9' there, but fma float32, fma float64, vpdpbusd, vdpbf16ps
  help     machine_fields = {dram = {bytes_per_cycle = 16.0}}

given HEAD + DENSE + '[[contenders]]\nmachine = "zen5"\nmachine_fields = {dram = {bytes_per_cycl = 2}}\n'
study: cannot read the machine zen5
  at       study.toml, contender 1, machine_fields.dram.bytes_per_cycl
  because  the keys here are name, line, bytes_per_cycle, latency_cycles, source
  help     machine_fields = {dram = {bytes_per_cycle = 16.0}}

given HEAD + DENSE + '[[contenders]]\nmachine = "zen5"\nmachine_fields = {dram = {bytes_per_cycle = "x"}}\n'
study: cannot read the machine zen5
  at       study.toml, contender 1, machine_fields.dram.bytes_per_cycle
  because  it is a number above 0, got 'x'
  help     machine_fields = {dram = {bytes_per_cycle = 16.0}}

given HEAD + DENSE + '[[contenders]]\ntarget = "cuda"\ndevice = "x"\n'
study: cannot take device='x'
  at       study.toml, contender 1, device
  because  a device is the GPU that is there, or emulated
  help     device=None
  help     device="emulated"

given HEAD + DENSE + '[[contenders]]\ntune = {explorer = "annel"}\n'
study: cannot take explorer='annel'
  at       study.toml, contender 1, tune.explorer
  because  there is no such explorer
  help     anneal, beam, evolution, exhaustive, gradient, random, tree
  help     a function of (space, seen, rng, count)

given HEAD + DENSE + '[[contenders]]\nstrategy = "ladder(x)"\n'
study: cannot take strategy='ladder(x)'
  at       study.toml, contender 1, strategy
  because  there is no such strategy
  help     did you mean ladder?
  help     auto, guard, exact, cut, mask, pad, shift, ladder, balance, even, residue, version, mix

given HEAD + DENSE + '[[contenders]]\nstrategy = {i = "cut(3)"}\n'
study: cannot take strategy='cut(3)'
  at       study.toml, contender 1, strategy.i
  because  1 height is given, and cut takes no heights
  help     "cut"

given HEAD + DENSE + '[[contenders]]\nstrategy = ["mine:halves", "auto"]\n'
study: cannot take strategy=['mine:halves', 'auto']
  at       study.toml, contender 1, strategy
  because  auto is the choice among strategies, and none of those that a list has compete
  help     strategy=['mine:halves', 'ladder', 'balance'], which auto chooses from on a CPU
  help     strategy="auto"

given HEAD + DENSE + '[[contenders]]\nname = "tall"\nstrategy = {z = "cut"}\n'
study: cannot find the axis 'z'
  at       study.toml, contender 'tall', strategy
  because  mk,kn->mn: no axis has that name
  help     the axes are result.i, result.j, result.k
  help     only = '…', the operators that have the axis

given HEAD + DENSE + '[[contenders]]\npeer = "gone:f"\n'
study: cannot load 'gone:f'
  at       study.toml, contender 1, peer
  because  SystemExit: it ends the process by os._exit(3)
  help     "module:function", a file beside the study

given HEAD + '[[operators]]\ndescribe = "mine:leave"\n' + AUTO
study: cannot describe describe = 'mine:leave'
  at       study.toml, operator 1
  because  SystemExit: it ends the process by os._exit(3)
  help     a function of the sizes by name that returns output, [A, B]
""",
    globals(),
)


def check_refused(text: str, expected: str, folder: Path) -> None:
    """Check that a study of this text is refused, beside files that it may name, and that it makes no folder."""
    (folder / "lengths.csv").write_text("m,t\n1,2\n")
    (folder / "huge.csv").write_text("m,k,n\n99999999999999999999,8,8\n")
    (folder / "layers.csv").write_text("layer,M,k,n\nfirst,1,8,16\n")
    (folder / "requests.csv").write_text("# of a day\n\nm\n1\nx\n", encoding="utf-8-sig")
    (folder / "mine.py").write_text(MINE)
    (folder / "gone.py").write_text("from os import _exit\n_exit(3)\n")
    (folder / "theirs.py").write_text(MINE + "# of theirs")
    (folder / "study.toml").write_text(text)
    with rejection(f"DescribeError: {expected}"):
        oc.study(folder / "study.toml", folder / "out")
    assert not (folder / "out").exists()


@pytest.mark.parametrize("what", REFUSED)
def test_a_study_is_refused_by_its_place(what: str, tmp_path: Path) -> None:
    text, where, because = REFUSED[what]
    at = f"study.toml, {where}" if where else "study.toml"
    check_refused(
        text, f"study: cannot read the study\n  at       {at}\n  because  {because}", tmp_path
    )


@pytest.mark.parametrize("what", REFUSED_IN_FULL)
def test_what_a_study_asks_of_others_is_refused_by_its_place(what: str, tmp_path: Path) -> None:
    text, expected = REFUSED_IN_FULL[what]
    check_refused(text, expected.replace("FOLDER", str(tmp_path)), tmp_path)


@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-8"])
def test_a_file_with_a_mark_of_its_coding_is_read_and_the_largest_size_is_one(
    coding: str, tmp_path: Path
) -> None:
    text = HEAD + DENSE.replace("[1, 3]", "[1, 2147483647]") + AUTO
    (tmp_path / "study.toml").write_text(text, encoding=coding)

    definition = read_definition(tmp_path / "study.toml")
    assert [point.sizes["m"] for point in definition.operators[0].points] == [1, 2**31 - 1]


def test_a_file_in_another_coding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(HEAD + DENSE + AUTO, encoding="utf-16")
    with pytest.raises(DescribeError) as refused:
        read_definition(tmp_path / "study.toml")

    assert str(refused.value) == (
        f"study: cannot read the file\n  at       {tmp_path / 'study.toml'}\n"
        "  because  'utf-8' codec can't decode byte 0xff in position 0: invalid start byte\n"
        "  help     text in UTF-8"
    )


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


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[1]", "it is not an object"),
        ('{"cell": 1}', "Sample.__init__() missing 4 required positional arguments"),
        (
            '{"cell": "a", "operator": "d", "sizes": {}, "contender": "c", "seconds": [0]}',
            "seconds are numbers above 0",
        ),
    ],
)
def test_a_line_that_is_no_sample_is_refused_by_its_number(
    line: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_text(f"\n{line}\n")

    with pytest.raises(DescribeError) as refused:
        compare(tmp_path, tmp_path)

    assert str(refused.value).startswith(
        f"study: cannot read the samples\n  at       {FILE}\n  because  line 2 is not a sample: {why}"
    )
