"""Recurrent layers over a sequence of any length, as loop programs.

What a step reads of the step before is no tensor of expressions: these give a `Program`, which `offcut.compile` takes, and which
is an operator of graphs as others are. The product of the input with its weights is not in it: it is one product for all steps,
`dense` of (steps, batch, e). The products of the state are nests of their own inside the loop over the steps, which microkernels
run; weights bound as constants lie as these read them.
"""

from offcut.ops.recurrent.gru import gru
from offcut.ops.recurrent.lstm import lstm
from offcut.ops.recurrent.rnn import rnn

__all__ = ["gru", "lstm", "rnn"]
