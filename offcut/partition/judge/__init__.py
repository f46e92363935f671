"""The judge of covers: a tile, its program and a microkernel in; how the microkernel runs it, or why not.

    microkernel  C[i, j] = sum over p of A[i, p] * B[p, j]
    tile         for k in 0:64: Y[b, r, s] += V[s, k] * X[b, k, r]        i -> s, j -> r, p -> k;  A = V, B = X

It asks in this order, and names the first that fails (`Question`):

term      the expressions agree node by node (sums and products commute), the reducers and the types too
bounds    of the loops of the sum are the same for all instances; an instance is off along one axis only
extents   are such as the microkernel has, or are predicated, padded, repeated
moves     elements move along the axes of the tile as the declared ones do along their axes: there is a
          linear map from declared places to those of the program
memory    each operand lies in a memory that the microkernel accepts
layout    there it lies as declared, or the target may lay it so
start     a sum starts from the neutral element, by the microkernel or by its reset, or is added to
inside    the result is not read while it is computed
unit      what runs the microkernel runs the loops around

Names of axes and of arrays are never compared. Which axis is which is found by access relations, the
innermost axis first, unless a cover says it: then loops whose bounds move with the axes of the tile are
counted from there (``for k in i:i + 4`` runs r = k - i, a unimodular change of axes), too.
"""

from offcut.partition.judge.coverage import MAIN as MAIN
from offcut.partition.judge.coverage import Coverage as Coverage
from offcut.partition.judge.coverage import Covered as Covered
from offcut.partition.judge.coverage import Parts as Parts
from offcut.partition.judge.coverage import Surroundings as Surroundings
from offcut.partition.judge.covers import first_cover as first_cover
from offcut.partition.judge.covers import match_cover as match_cover
from offcut.partition.judge.covers import uncovered_notes as uncovered_notes
from offcut.partition.judge.covers import with_covers as with_covers
from offcut.partition.judge.judge import cover as cover
from offcut.partition.judge.judge import is_run as is_run
from offcut.partition.judge.match import BEFORE_STAGING as BEFORE_STAGING
from offcut.partition.judge.match import Match as Match
from offcut.partition.judge.match import Question as Question
from offcut.partition.judge.match import Refusal as Refusal
from offcut.partition.judge.match import all_matches as all_matches
from offcut.partition.judge.match import matches as matches
from offcut.partition.judge.match import pairings as pairings
from offcut.partition.judge.places import is_multiple as is_multiple
