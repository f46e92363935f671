"""What a study's file refuses: the whole text, with the place in the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import refusals

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
a key that is none
given HEAD.replace(']', ']\nround = 3') + DENSE + AUTO
study: cannot read the study
  at       study.toml, study
  because  there is no key 'round'
  help     rounds = …

no operators
given HEAD + AUTO
study: cannot read the study
  at       study.toml
  because  it has no operators
  help     [[operators]]
einsum = "mk,kn->mn"

an operator of two kinds
given HEAD + DENSE + 'op = "softmax"\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1
  because  it has einsum and op of the keys einsum, op, program, model, describe, suite, and one is needed
  help     einsum = "mk,kn->mn"
  help     op = "softmax"
  help     suite = "dietcode"

an axis without a size
given HEAD + DENSE.replace(', n = 16', '') + AUTO
study: cannot read the study
  at       study.toml, operator 1, sizes
  because  the axis 'n' has no size
  help     the axes are m, k, n

a size of nothing
given HEAD + DENSE.replace('[1, 3]', '[0, 3]') + AUTO
study: cannot read the study
  at       study.toml, operator 1, sizes.m
  because  0 is not a size: sizes are whole numbers from 1 to 2**31 - 1
  help     m = 64
  help     m = [1, 7, 33]
  help     m = "1:512"
  help     m = "lengths.csv"
  help     m = {3 = 0.8, 17 = 0.2}

a column that is not there
given HEAD + DENSE.replace('[1, 3]', '{csv = "lengths.csv", column = "tokens"}') + AUTO
study: cannot read the study
  at       study.toml, operator 1, sizes.m
  because  lengths.csv has no column 'tokens': its columns are m, t
  help     {csv = "lengths.csv", column = "…"}

a suite that is none
given HEAD + '[[operators]]\nsuite = "dietcod"\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, suite
  because  there is no suite 'dietcod'
  help     did you mean dietcode?
  help     bert, deepbench, dietcode, llama2, mikpoly, polybench, resnet50, vta

a strategy that is none
given HEAD + DENSE + '[[contenders]]\nstrategy = "laddr"\n'
study: cannot read the study
  at       study.toml, contender 1, strategy
  because  there is no 'laddr'; entry points of offcut.strategies: none
  help     did you mean ladder?
  help     "module:function", a file beside the study

a peer that is none
given HEAD + DENSE + '[[contenders]]\npeer = "nump"\n'
study: cannot read the study
  at       study.toml, contender 1, peer
  because  there is no 'nump'; entry points of offcut.peers: none
  help     did you mean numpy or numba?
  help     "module:function", a file beside the study

a name with a tab
given HEAD + DENSE + AUTO + '[[contenders]]\npeer = "numpy"\nname = "a\\tb\\n c"\n'
study: cannot read the study
  at       study.toml, contenders
  because  'a\tb\n c' is not a name that a table can show in a line
  help     name = "a b c"

an operator whose name is blank
given HEAD + DENSE + 'name = " "\n' + AUTO
study: cannot read the study
  at       study.toml, operators
  because  ' ' is not a name that a table can show in a line
  help     name = "operator"

an expression of a suite that is none
given HEAD + '[[operators]]\nsuite = "bert"\nonly = "("\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, only
  because  '(' is not a regular expression: missing ), unterminated subpattern at position 0
  help     only = '\('

a contender twice
given HEAD + DENSE + AUTO + AUTO
study: cannot read the study
  at       study.toml, contenders
  because  two contenders are called 'auto'
  help     name = "…"

a contraction that is none
given HEAD + DENSE.replace('mk,kn->mn', 'mk,kn->mx') + AUTO
study: cannot describe einsum = 'mk,kn->mx'
  at       study.toml, operator 1
  because  the result has the axis 'x' and no operand has it
  help     "mk,kn->m"

a function that raises
given HEAD + '[[operators]]\ndescribe = "mine:broken"\n' + AUTO
study: cannot describe describe = 'mine:broken'
  at       study.toml, operator 1
  because  KeyError: 'mine'
  help     a function of the sizes by name that returns output, [A, B]

a function that gives something else
given HEAD + '[[operators]]\ndescribe = "mine:number"\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, describe
  because  it gave (1, 2, 3)
  help     return output, [A, B]

a tolerance of a workload of one's own
given HEAD + '[[operators]]\ndescribe = "mine:Own"\ntolerance = 0.1\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, tolerance
  because  mine:Own gives a workload, whose tasks say how far a result may be off
  help     Exact(values, tolerance, by), of its task

two strategies of one name
given HEAD + DENSE + ''.join((f'[[contenders]]\nstrategy = "{name}:halves"\n' for name in ('mine', 'theirs')))
study: cannot read the study
  at       study.toml
  because  two strategies are called 'halves': mine:halves and theirs:halves
  help     rename one

a strategy with a name of offcut's
given HEAD + DENSE + '[[contenders]]\nstrategy = "mine:ladder"\n'
study: cannot take the strategy 'mine:ladder'
  at       study.toml, contender 1, strategy
  because  offcut has a strategy of that name
  help     @oc.strategy("halve")

seconds without an end
given HEAD + 'seconds_per_cell = inf\n' + DENSE + AUTO
study: cannot read the study
  at       study.toml, study.seconds_per_cell
  because  inf is not a number from 0.0001 to 86400
  help     seconds_per_cell = 0.3

seconds beyond a day
given HEAD + 'seconds_per_cell = 1e300\n' + DENSE + AUTO
study: cannot read the study
  at       study.toml, study.seconds_per_cell
  because  1e+300 is not a number from 0.0001 to 86400
  help     seconds_per_cell = 0.3

threads beyond what a call may use
given HEAD + DENSE + AUTO + '[[contenders]]\npeer = "numpy"\nthreads = 100000\n'
study: cannot read the study
  at       study.toml, contender 2, threads
  because  100000 is not a whole number from 1 to 1024
  help     threads = 1

threads of a study beyond what a call may use
given HEAD + 'threads = 100000\n' + DENSE + AUTO
study: cannot read the study
  at       study.toml, study.threads
  because  100000 is not a whole number from 1 to 1024
  help     threads = 1

a model that is a number
given HEAD + '[[operators]]\nmodel = "mine:PRICE"\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, model
  because  mine:PRICE is int, not a function
  help     "module:function" of its arguments, which returns a model

a model whose function does not take its arguments
given HEAD + '[[operators]]\nmodel = "mine:number"\narguments = {layers = 2}\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, arguments
  because  number: got an unexpected keyword argument 'layers'
  help     number()

a model that is a file of something else
given HEAD + '[[operators]]\nmodel = "lengths.csv"\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, model
  because  lengths.csv is not an ONNX model
  help     a file that onnx.save wrote, or another exporter

a line that is no size
given HEAD + DENSE.replace('[1, 3]', '"requests.csv"') + AUTO
study: cannot read the study
  at       study.toml, operator 1, sizes.m
  because  requests.csv, line 5: 'x' is not a whole number from 1 to 2**31 - 1
  help     a whole number in each line

values of no input
given HEAD + DENSE + 'values = {C = "positive"}\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, values
  because  there is no input 'C'
  help     the inputs are A, B

a goal of no contender
given HEAD + DENSE + AUTO + '[[goals]]\nover = "torch"\nmean = 1.1\n'
study: cannot read the study
  at       study.toml, goal 1, over
  because  there is no contender 'torch'
  help     auto

a reference that is a number
given HEAD + DENSE + AUTO + '[[goals]]\nreference = 3\n'
study: cannot read the study
  at       study.toml, goal 1, reference
  because  3 is neither sizes nor an operator
  help     reference = {m = 1024} or reference = "another operator"

a goal of no operator
given HEAD + DENSE + AUTO + '[[goals]]\nmean = 1.0\n[[goals]]\noperators = "sparse"\nworst = 0.9\n'
study: cannot read the study
  at       study.toml, goal 2, operators
  because  no operator has 'sparse' in its name
  help     mk,kn->mn

a goal without a threshold
given HEAD + DENSE + AUTO + '[[contenders]]\npeer = "numpy"\n[[goals]]\nmean = 1.0\n[[goals]]\nover = "numpy"\n'
study: cannot read the study
  at       study.toml, goal 2
  because  it has no threshold
  help     mean = …
  help     worst = …
  help     share = …
  help     regret = …

an input that is nearly a parameter
given HEAD + LAYERNORM.replace('bias', 'bais') + AUTO
study: cannot read the study
  at       study.toml, operator 1, inputs.bais
  because  oc.ops.layernorm has no parameter 'bais'
  help     bias = …

an input in the place of another parameter
given HEAD + LAYERNORM.replace('bias', 'shift').replace('gain', 'bias') + AUTO
study: cannot read the study
  at       study.toml, operator 1, inputs.bias
  because  'bias' would be the parameter 'gain': where a name is no parameter's, inputs are parameters in order
  help     the parameters are x, gain, bias, epsilon, name

no processes
given HEAD + 'processes = 0\n' + DENSE + AUTO
study: cannot read the study
  at       study.toml, study.processes
  because  0 is not a whole number from 1 to 1000
  help     processes = 7

more processes than memory has numbers for
given HEAD + 'processes = 99999999999\n' + DENSE + AUTO
study: cannot read the study
  at       study.toml, study.processes
  because  99999999999 is not a whole number from 1 to 1000
  help     processes = 7

rounds that never end
given HEAD + 'rounds = 9223372036854775807\n' + DENSE + AUTO
study: cannot read the study
  at       study.toml, study.rounds
  because  9223372036854775807 is not a whole number from 1 to 100000
  help     rounds = 21

a size in a file beyond what a size can be
given HEAD + '[[operators]]\neinsum = "mk,kn->mn"\nsizes = "huge.csv"\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, sizes
  because  huge.csv, line 2: '99999999999999999999' in column 'm' is not a whole number from 1 to 2**31 - 1
  help     a whole number in each line
  help     {csv = "huge.csv", columns = {k = "k", n = "n"}}

a column of names where sizes are due
given HEAD + '[[operators]]\neinsum = "mk,kn->mn"\nsizes = "layers.csv"\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, sizes
  because  layers.csv, line 2: 'first' in column 'layer' is not a whole number from 1 to 2**31 - 1
  help     a whole number in each line
  help     {csv = "layers.csv", columns = {M = "M", k = "k", n = "n"}}
  help     {csv = "layers.csv", names = "layer"}, layers by name

a column that a file of layers lacks
given HEAD + '[[operators]]\neinsum = "mk,kn->mn"\nsizes = {csv = "layers.csv", columns = {m = "m", k = "k", n = "n"}}\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, sizes
  because  layers.csv has no columns 'm' for m: its columns are layer, M, k, n
  help     {csv = "layers.csv", columns = {m = "M", k = "k", n = "n"}}

a reference at sizes that are not measured
given HEAD + DENSE + AUTO + '[[goals]]\nreference = {m = 99}\nworst = 0.9\n'
study: cannot read the study
  at       study.toml, goal 1, reference
  because  no operator of the goal is measured at these sizes
  help     mk,kn->mn is measured at m = 1, k = 8, n = 16

a reference to an operator that is none
given HEAD + DENSE + AUTO + '[[goals]]\nreference = "dens"\nmean = 1.0\n'
study: cannot read the study
  at       study.toml, goal 1, reference
  because  there is no operator 'dens'
  help     mk,kn->mn

a share of limits that are not measured
given HEAD + DENSE + AUTO + '[[goals]]\nshare = 0.5\n'
study: cannot read the study
  at       study.toml, goal 1, share
  because  a share of the machine's limit needs the limits
  help     limits = true, in [study]

a contender of no operator
given HEAD + DENSE + AUTO + '[[contenders]]\nstrategy = "cut"\nonly = "sparse"\n'
study: cannot read the study
  at       study.toml, contender 2, only
  because  no operator has 'sparse' in its name
  help     mk,kn->mn

an expression that is none
given HEAD + DENSE + AUTO + '[[goals]]\noperators = "("\n'
study: cannot read the study
  at       study.toml, goal 1, operators
  because  '(' is not a regular expression: missing ), unterminated subpattern at position 0
  help     operators = '\('

a name that no folder has
given HEAD + 'name = "my study"\n' + DENSE + AUTO
study: cannot read the study
  at       study.toml, study.name
  because  'my study' is not a name of letters, digits, hyphens, underscores and dots, as the study's folder has
  help     name = "study"

a bound that is a text
given HEAD + DENSE + 'bounds = {m = "a"}\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, bounds.m
  because  'a' is not a whole number from 3 on, the greatest size
  help     bounds = {m = 3}

a suite whose file is gone
given HEAD + '[[operators]]\nsuite = "gone.toml"\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, suite
  because  there is no file gone.toml
  help     suite = "dietcode"

a contraction with half an arrow
given HEAD + DENSE.replace('mk,kn->mn', 'mk,kn>mn') + AUTO
study: cannot describe einsum = 'mk,kn>mn'
  at       study.toml, operator 1
  because  it has no '->'
  help     "mk,kn->mn"

a contraction of nothing
given HEAD + DENSE.replace('mk,kn->mn', '') + AUTO
study: cannot describe einsum = ''
  at       study.toml, operator 1
  because  it is empty
  help     "mk,kn->mn": a letter per axis, a comma

a key that no contender has
given HEAD + DENSE + '[[contenders]]\nqqq = 1\n'
study: cannot read the study
  at       study.toml, contender 1
  because  there is no key 'qqq'
  help     the keys are name, strategy, schedule, price, microkernels, rules, threads, frontend, target, machine, device, machine_fields, replan, reassociate, hiding, tune, draw, peer, function, measure, only, each

a short form that keeps nothing, of which the long form is read
given HEAD + DENSE + AUTO + '[short]\noperators = "sparse"\n'
study: cannot read the study
  at       study.toml, short.operators
  because  no operator has 'sparse' in its name
  help     mk,kn->mn

limits that are no answer
given HEAD + 'limits = 1\n' + DENSE + AUTO
study: cannot read the study
  at       study.toml, study.limits
  because  1 is neither true nor false
  help     limits = true

an axis with sizes twice
given HEAD + DENSE.replace('k = 8', 'k = 8, "m, n" = [3]') + AUTO
study: cannot read the study
  at       study.toml, operator 1, sizes
  because  the axis 'm' has sizes twice
  help     "m, n" alone

an unknown frontend
given HEAD + DENSE + '[[contenders]]\nfrontend = "tflite"\n'
study: cannot read the study
  at       study.toml, contender 1, frontend
  because  there is no frontend 'tflite'
  help     torch, onnx

an operator that offcut lacks
given HEAD + '[[operators]]\nop = "softmx"\ninputs = {x = "m, 8"}\nsizes = {m = [1]}\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, op
  because  there is no oc.ops.softmx
  help     did you mean softmax or log_softmax or sort?

a table that is not closed
given HEAD + '[[operators]\n' + AUTO
study: cannot read the file
  at       FOLDER/study.toml
  because  Expected ']]' at the end of an array declaration (at line 2, column 12)
  help     key = value, [table] or [[list]]

values that draw nothing
given HEAD + DENSE + 'values = {A = "positiv"}\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, values.A
  because  'positiv' draws nothing
  help     normal
  help     positive
  help     small
  help     dominant
  help     definite
  help     "0:30521" of whole numbers

values between ends the wrong way round
given HEAD + DENSE + 'values = {B = "9:3"}\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, values.B
  because  '9:3' draws nothing
  help     normal
  help     positive
  help     small
  help     dominant
  help     definite
  help     "0:30521" of whole numbers

a function that its file lacks
given HEAD + DENSE + '[[contenders]]\npeer = "mine:numbr"\n'
study: cannot load 'mine:numbr'
  at       study.toml, contender 1, peer
  because  mine has no 'numbr'
  help     did you mean number?

a price that is a number
given HEAD + DENSE + '[[contenders]]\nprice = "mine:PRICE"\n'
study: cannot read the study
  at       study.toml, contender 1, price
  because  mine:PRICE is int, not a function
  help     "module:function" of the loops of a variant, sizes, and the built-in price

a peer that is a number
given HEAD + DENSE + '[[contenders]]\npeer = "mine:PRICE"\n'
study: cannot read the study
  at       study.toml, contender 1, peer
  because  mine:PRICE is int, not a function
  help     "module:function" of inputs and sizes

a target that is none
given HEAD + DENSE + '[[contenders]]\ntarget = "cpux"\n'
study: cannot plan for 'cpux'
  at       study.toml, contender 1, target
  because  there is no such target
  help     target="accelerator", target="cpu", target="cuda", target="gemmini", target="interpret", target="vta", target="vta-osdi18"

a field that a machine lacks
given HEAD + DENSE + '[[contenders]]\ntarget = "cpu"\nmachine = "zen5"\nmachine_fields = {unit = {9 = {rows = 2}}}\n'
study: cannot change the machine
  at       study.toml, contender 1, machine_fields
  because  the description has no '9' there, but fma float32, fma float64, vpdpbusd, vdpbf16ps
  help     machine_fields = {dram = {bytes_per_cycle = 16.0}}

a field that a table of a machine lacks
given HEAD + DENSE + '[[contenders]]\nmachine = "zen5"\nmachine_fields = {dram = {bytes_per_cycl = 2}}\n'
study: cannot read the machine zen5
  at       study.toml, contender 1, machine_fields.dram.bytes_per_cycl
  because  the keys here are name, line, bytes_per_cycle, latency_cycles, source
  help     machine_fields = {dram = {bytes_per_cycle = 16.0}}

a field of a machine that is text
given HEAD + DENSE + '[[contenders]]\nmachine = "zen5"\nmachine_fields = {dram = {bytes_per_cycle = "x"}}\n'
study: cannot read the machine zen5
  at       study.toml, contender 1, machine_fields.dram.bytes_per_cycle
  because  it is a number above 0, got 'x'
  help     machine_fields = {dram = {bytes_per_cycle = 16.0}}

a device that is none
given HEAD + DENSE + '[[contenders]]\ntarget = "cuda"\ndevice = "x"\n'
study: cannot take device='x'
  at       study.toml, contender 1, device
  because  a device is the GPU that is there, or emulated
  help     device=None
  help     device="emulated"

an explorer that is none
given HEAD + DENSE + '[[contenders]]\ntune = {explorer = "annel"}\n'
study: cannot take explorer='annel'
  at       study.toml, contender 1, tune.explorer
  because  there is no such explorer
  help     anneal, beam, evolution, exhaustive, gradient, random, tree
  help     a function of (space, seen, rng, count)

a feature that is a number
given HEAD + DENSE + '[[contenders]]\ntune = {features = ["mine:PRICE"]}\n'
study: cannot read the study
  at       study.toml, contender 1, tune.features
  because  mine:PRICE is int, not a function
  help     "module:function" of a case of a search

a price of a search that is none
given HEAD + DENSE + '[[contenders]]\ntune = {price = "learnd"}\n'
study: cannot read the study
  at       study.toml, contender 1, tune.price
  because  there is no 'learnd'; entry points of offcut.prices: none
  help     did you mean learned?
  help     "module:function", a file beside the study

a table inside of a text
given HEAD + DENSE + '[[contenders]]\nstrategy = "cut"\neach = {"strategy.x" = ["cut"]}\n'
study: cannot read the study
  at       study.toml, contender 1, each
  because  'strategy' is 'cut', and not a table that 'strategy.x' leads into
  help     each = {strategy = ["cut", "mask"]}

a strategy whose heights are none
given HEAD + DENSE + '[[contenders]]\nstrategy = "ladder(x)"\n'
study: cannot take strategy='ladder(x)'
  at       study.toml, contender 1, strategy
  because  there is no such strategy
  help     did you mean ladder?
  help     auto, guard, exact, cut, mask, pad, shift, ladder, balance, even, residue, version, mix

heights of a strategy that takes none
given HEAD + DENSE + '[[contenders]]\nstrategy = {i = "cut(3)"}\n'
study: cannot take strategy='cut(3)'
  at       study.toml, contender 1, strategy.i
  because  1 height is given, and cut takes no heights
  help     "cut"

the choice itself in a list of strategies
given HEAD + DENSE + '[[contenders]]\nstrategy = ["mine:halves", "auto"]\n'
study: cannot take strategy=['mine:halves', 'auto']
  at       study.toml, contender 1, strategy
  because  auto is the choice among strategies, and none of those that a list has compete
  help     strategy=['mine:halves', 'ladder', 'balance'], which auto chooses from on a CPU
  help     strategy="auto"

a strategy of an axis that an operator lacks
given HEAD + DENSE + '[[contenders]]\nname = "tall"\nstrategy = {z = "cut"}\n'
study: cannot find the axis 'z'
  at       study.toml, contender 'tall', strategy
  because  mk,kn->mn: no axis has that name
  help     the axes are result.i, result.j, result.k
  help     only = '…', the operators that have the axis

a strategy in a list that is expanded
given HEAD + DENSE + AUTO + '[[contenders]]\nname = "ours"\neach = {strategy = ["cut", "laddr"]}\n'
study: cannot read the study
  at       study.toml, contender 'ours', each.strategy
  because  there is no 'laddr'; entry points of offcut.strategies: none
  help     did you mean ladder?
  help     "module:function", a file beside the study

trials in a table that is expanded
given HEAD + DENSE + '[[contenders]]\ntarget = "vta"\neach = {"tune.trials" = [16, 0]}\ntune = {price = "closed"}\n'
study: cannot read the study
  at       study.toml, contender 1, each.tune.trials
  because  0 is not a whole number from 1 on
  help     trials = 64

a key behind a table that is expanded
given HEAD + DENSE + '[[contenders]]\neach = {strategy = ["cut", "mask"]}\n[[contenders]]\npeer = "numpy"\nthread = 2\n'
study: cannot read the study
  at       study.toml, contender 2
  because  there is no key 'thread'
  help     threads = …

an operator of a suite with a type that it lacks
given HEAD + '[[operators]]\nsuite = "bert"\ntype = "int4"\n' + AUTO
study: cannot read the study
  at       study.toml, operator 1, suite bert, operator 'qkv', type
  because  there is no contraction of 'int4'
  help     float64, float32, float16, bfloat16, int8, uint8

a microkernel that is a number
given HEAD + DENSE + '[[contenders]]\nmicrokernels = "mine:PRICE"\n'
study: cannot read the study
  at       study.toml, contender 1, microkernels
  because  mine:PRICE is int, not a microkernel
  help     oc.external_microkernel(…), or a list of these

rules that are a number
given HEAD + DENSE + '[[contenders]]\nrules = "mine:PRICE"\n'
study: cannot read the study
  at       study.toml, contender 1, rules
  because  mine:PRICE is int, not a rule
  help     offcut.graph.rule(name, before, after), or a list of these

rules of a graph for an operator that has none
given HEAD + DENSE + '[[contenders]]\nrules = "mine:RULES"\n'
study: cannot read the study
  at       study.toml, contender 1, rules
  because  mk,kn->mn is one kernel, and rules rewrite the graph of a model
  help     only = '…', the operators that are models

a module that ends the process while it is read
given HEAD + DENSE + '[[contenders]]\npeer = "gone:f"\n'
study: cannot load 'gone:f'
  at       study.toml, contender 1, peer
  because  SystemExit: it ends the process by os._exit(3)
  help     "module:function", a file beside the study

a function that ends the process while it is read
given HEAD + '[[operators]]\ndescribe = "mine:leave"\n' + AUTO
study: cannot describe describe = 'mine:leave'
  at       study.toml, operator 1
  because  SystemExit: it ends the process by os._exit(3)
  help     a function of the sizes by name that returns output, [A, B]""",
    globals(),
)


@pytest.mark.parametrize("name", REFUSED)
def test_a_study_is_refused_by_its_place(name: str, tmp_path: Path) -> None:
    text, expected = REFUSED[name]
    (tmp_path / "lengths.csv").write_text("m,t\n1,2\n")
    (tmp_path / "huge.csv").write_text("m,k,n\n99999999999999999999,8,8\n")
    (tmp_path / "layers.csv").write_text("layer,M,k,n\nfirst,1,8,16\n")
    (tmp_path / "requests.csv").write_text("# of a day\n\nm\n1\nx\n", encoding="utf-8-sig")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "gone.py").write_text("from os import _exit\n_exit(3)\n")
    (tmp_path / "theirs.py").write_text(MINE + "# of theirs")
    (tmp_path / "study.toml").write_text(text)

    with pytest.raises(DescribeError) as refused:
        oc.study(tmp_path / "study.toml", tmp_path / "out")

    assert str(refused.value) == expected.replace("FOLDER", str(tmp_path))
    assert not (tmp_path / "out").exists()


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
