"""Every refusal of the parser, as the user reads it."""

from __future__ import annotations

import pytest

from offcut.core.parser import parse
from offcut.errors import ParseError

HEAD = """\
size n in 0:9
input A: float32[n, 4]
local T: int32[n]
output C: float32[n]
"""

# What is wrong: the text after HEAD, and the refusal.
STATEMENTS = {
    "an unknown buffer is read": (
        """\
C[0] = B[0]""",
        """\
parse: cannot access `B`
  at       line 5, column 8: C[0] = B[0]
  because  no buffer of that name is declared
  help     declared: A, T, C""",
    ),
    "an unknown buffer is written": (
        """\
B[0] = 1.0""",
        """\
parse: cannot access `B`
  at       line 5, column 1: B[0] = 1.0
  because  no buffer of that name is declared
  help     declared: A, T, C""",
    ),
    "an access has too few indices": (
        """\
C[0] = A[n]""",
        """\
parse: cannot access `A` with 1 index
  at       line 5, column 11: C[0] = A[n]
  because  A has 2 axes
  help     A[…, …]""",
    ),
    "an access has too many indices": (
        """\
C[0, 1] = 1.0""",
        """\
parse: cannot access `C` with 2 indices
  at       line 5, column 7: C[0, 1] = 1.0
  because  C has 1 axis
  help     C[…]""",
    ),
    "a name is not declared": (
        """\
for i in 0:k""",
        """\
parse: cannot use `k` here
  at       line 5, column 12: for i in 0:k
  because  no size and no loop around it has the name k
  help     in scope: n""",
    ),
    "a coordinate is used after its loop": (
        """\
for i in 0:n
C[i] = 1.0""",
        """\
parse: cannot use `i` here
  at       line 6, column 3: C[i] = 1.0
  because  no size and no loop around it has the name i
  help     in scope: n""",
    ),
    "a tile axis starts at its neighbour": (
        """\
tile i in 0 +: 4, j in i +: 4""",
        """\
parse: cannot use `i` here
  at       line 5, column 24: tile i in 0 +: 4, j in i +: 4
  because  no size and no loop around it has the name i
  help     in scope: n""",
    ),
    "a buffer is used without an index": (
        """\
C[0] = A""",
        """\
parse: cannot use `A` here
  at       line 5, column 8: C[0] = A
  because  A is a buffer
  help     A[…] reads an element""",
    ),
    "a for has an unknown mark": (
        """\
for i in 0:n  @bdy""",
        """\
parse: cannot mark a for with @bdy
  at       line 5, column 16: for i in 0:n  @bdy
  because  there is no such mark
  help     marks of a for: @whole, @body, @tail""",
    ),
    "a for has a mark of tiles": (
        """\
for i in 0:n  @mask""",
        """\
parse: cannot mark a for with @mask
  at       line 5, column 16: for i in 0:n  @mask
  because  there is no such mark
  help     marks of a for: @whole, @body, @tail""",
    ),
    "a mark is repeated": (
        """\
tile i in 0 +: 4  @body  @tail""",
        """\
parse: cannot mark a tile with @tail
  at       line 5, column 27: tile i in 0 +: 4  @body  @tail
  because  it has such a mark already
  help     marks of a tile: @whole, @body, @tail, @full, @mask, @pad, @shift, @microkernel(…)""",
    ),
    "element types are mixed": (
        """\
C[0] = A[0, 0] + T[0]""",
        """\
parse: cannot take int32 as an operand of `+`
  at       line 5, column 18: C[0] = A[0, 0] + T[0]
  because  an operand of `+` is float32
  help     float32(…) converts it""",
    ),
    "the value has another element type": (
        """\
C[0] = T[0]""",
        """\
parse: cannot take int32 as an element of C
  at       line 5, column 8: C[0] = T[0]
  because  an element of C is float32
  help     float32(…) converts it""",
    ),
    "an index is stored as a value": (
        """\
for i in 0:n
  C[i] = i""",
        """\
parse: cannot take index as an element of C
  at       line 6, column 10: C[i] = i
  because  an element of C is float32
  help     float32(…) converts it""",
    ),
    "a value is used as an index": (
        """\
C[T[0]] = 1.0""",
        """\
parse: cannot take int32 as an index
  at       line 5, column 3: C[T[0]] = 1.0
  because  an integer expression in coordinates and sizes is wanted here
  help     index(…) converts it""",
    ),
    "a float is used as an index": (
        """\
C[1.5] = 1.0""",
        """\
parse: cannot read this literal
  at       line 5, column 3: C[1.5] = 1.0
  because  1.5 is not an integer, and index is wanted here""",
    ),
    "an input is written": (
        """\
A[0, 0] = 1.0""",
        """\
parse: cannot write `A`
  at       line 5, column 1: A[0, 0] = 1.0
  because  it is declared input, which is read only
  help     output, local and private buffers are written""",
    ),
    "the reduce mark is unknown": (
        """\
C[0] -= 1.0""",
        """\
parse: cannot read this line
  at       line 5, column 6: C[0] -= 1.0
  because  found `-`
  help     =, +=, max= or min= is expected here""",
    ),
    "a block does not belong to a statement": (
        """\
C[0] = 1.0
  C[1] = 1.0""",
        """\
parse: cannot place this line
  at       line 6, column 3: C[1] = 1.0
  because  no statement above it takes a block
  help     a block is indented alike, by spaces or by tabs""",
    ),
    "the indentation matches no block": (
        """\
for i in 0:n
    C[i] = 1.0
  C[i] = 2.0""",
        """\
parse: cannot place this line
  at       line 7, column 3: C[i] = 2.0
  because  its indentation of 2 is none of those around it (0, 4)
  help     a block is indented alike, by spaces or by tabs""",
    ),
    "tabs and spaces are mixed": (
        """\
for i in 0:n
  C[i] = 1.0
\tC[i] = 2.0""",
        """\
parse: cannot place this line
  at       line 7, column 2: C[i] = 2.0
  because  its indentation of 1 is none of those around it (0, 2)
  help     a block is indented alike, by spaces or by tabs""",
    ),
    "a bracket is not closed": (
        """\
C[0] = (1.0 + 2.0""",
        """\
parse: cannot read this line
  at       line 5, column 8: C[0] = (1.0 + 2.0
  because  `(` is never closed
  help     a `)` on the same line""",
    ),
    "a subscript is not closed": (
        """\
C[0] = A[0, 0""",
        """\
parse: cannot read this line
  at       line 5, column 9: C[0] = A[0, 0
  because  `[` is never closed
  help     a `]` on the same line""",
    ),
    "a bracket is not opened": (
        """\
C[0] = 1.0)""",
        """\
parse: cannot read this line
  at       line 5, column 11: C[0] = 1.0)
  because  `)` closes nothing""",
    ),
    "a function is unknown": (
        """\
C[0] = sin(1.0)""",
        """\
parse: cannot call `sin`
  at       line 5, column 8: C[0] = sin(1.0)
  because  there is no function and no element type of that name
  help     functions: exp, tanh, erf, sqrt, log, abs, min, max, where
  help     element types: float64, float32, float16, bfloat16, int64, int32, int8, uint8, index""",
    ),
    "a function has too many arguments": (
        """\
C[0] = exp(1.0, 2.0)""",
        """\
parse: cannot call `exp` with 2 arguments
  at       line 5, column 8: C[0] = exp(1.0, 2.0)
  because  it takes 1""",
    ),
    "a reduction stands in a loop program": (
        """\
C[0] = sum(A[0, n], n)""",
        """\
parse: cannot reduce by sum(…) here
  at       line 5, column 8: C[0] = sum(A[0, n], n)
  because  a loop program reduces by loops
  help     +=, max= or min= inside a for""",
    ),
    "a condition is not one": (
        """\
if n + 1""",
        """\
parse: cannot take index as a condition
  at       line 5, column 4: if n + 1
  because  a comparison, or several joined by and, or, not, is wanted here""",
    ),
    "a number is expected, not a condition": (
        """\
C[0] = 1.0 + (n < 1)""",
        """\
parse: cannot take a condition as an operand of `+`
  at       line 5, column 15: C[0] = 1.0 + (n < 1)
  because  it is an operation on numbers
  help     `and`, `or` and `not` combine conditions""",
    ),
    "integers are divided": (
        """\
for i in 0:n / 2""",
        """\
parse: cannot divide index by `/`
  at       line 5, column 12: for i in 0:n / 2
  because  `/` is for floating-point values
  help     `//` is the floor of the quotient""",
    ),
