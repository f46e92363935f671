"""Every refusal of the parser, as the user reads it."""

from __future__ import annotations

import pytest
from conftest import refusals, rejection

from offcut import parse
from offcut.errors import ParseError

HEAD = """\
size n in 0:9
input A: float32[n, 4]
local T: int32[n]
output C: float32[n]
"""


def test_the_name_of_a_file_is_no_program() -> None:
    with rejection("""\
ParseError: parse: cannot read a program
  at       line 1
  because  'gram.offcut' is the name of a file, not its text
  help     parse(pathlib.Path('gram.offcut').read_text())"""):
        parse("gram.offcut")


# What is wrong: the text after HEAD, and the refusal.
STATEMENTS = refusals(
    r"""
a loop ends in a colon
given 'for i in 0:n:\n  C[i] = 1.0'
parse: cannot read this line
  at       line 5, column 14: for i in 0:n:
  because  it ends in `:`
  help     a loop has no colon at its end

a loop is over a range of Python
given 'for i in range(n)\n  C[i] = 1.0'
parse: cannot read this line
  at       line 5, column 10: for i in range(n)
  because  found `range`
  help     for i in 0:n is a loop up to n - 1

an unknown buffer is read
given 'C[0] = B[0]'
parse: cannot access `B`
  at       line 5, column 8: C[0] = B[0]
  because  no buffer of that name is declared
  help     declared: A, T, C

an unknown buffer is written
given 'B[0] = 1.0'
parse: cannot access `B`
  at       line 5, column 1: B[0] = 1.0
  because  no buffer of that name is declared
  help     declared: A, T, C

an access has too few indices
given 'C[0] = A[n]'
parse: cannot access `A` with 1 index
  at       line 5, column 11: C[0] = A[n]
  because  A has 2 axes
  help     A[…, …]

an access has too many indices
given 'C[0, 1] = 1.0'
parse: cannot access `C` with 2 indices
  at       line 5, column 7: C[0, 1] = 1.0
  because  C has 1 axis
  help     C[…]

a name is not declared
given 'for i in 0:k'
parse: cannot use `k` here
  at       line 5, column 12: for i in 0:k
  because  no size and no loop around it has the name k
  help     in scope: n

a coordinate is used after its loop
given 'for i in 0:n\nC[i] = 1.0'
parse: cannot use `i` here
  at       line 6, column 3: C[i] = 1.0
  because  no size and no loop around it has the name i
  help     for i contains what is indented below it: indent this line
  help     in scope: n

a tile axis starts at its neighbour
given 'tile i in 0 +: 4, j in i +: 4'
parse: cannot use `i` here
  at       line 5, column 24: tile i in 0 +: 4, j in i +: 4
  because  no size and no loop around it has the name i
  help     in scope: n

a buffer is used without an index
given 'C[0] = A'
parse: cannot use `A` here
  at       line 5, column 8: C[0] = A
  because  A is a buffer
  help     A[…] reads an element

a for has an unknown mark
given 'for i in 0:n  @bdy'
parse: cannot mark a for with @bdy
  at       line 5, column 16: for i in 0:n  @bdy
  because  there is no such mark
  help     marks of a for: @whole, @body, @tail, @thread, @lane, @unroll, @cluster, @block, @warpgroup, @warp, @load, @compute, @store, @bind(…)

a for has a mark of tiles
given 'for i in 0:n  @mask'
parse: cannot mark a for with @mask
  at       line 5, column 16: for i in 0:n  @mask
  because  there is no such mark
  help     marks of a for: @whole, @body, @tail, @thread, @lane, @unroll, @cluster, @block, @warpgroup, @warp, @load, @compute, @store, @bind(…)

a mark is repeated
given 'tile i in 0 +: 4  @body  @tail'
parse: cannot mark a tile with @tail
  at       line 5, column 27: tile i in 0 +: 4  @body  @tail
  because  it has such a mark already
  help     marks of a tile: @whole, @body, @tail, @full, @guard, @mask, @pad, @shift, @by(…), @async, @multicast(…), @cover(…)

element types are mixed
given 'C[0] = A[0, 0] + T[0]'
parse: cannot take int32 as an operand of `+`
  at       line 5, column 18: C[0] = A[0, 0] + T[0]
  because  an operand of `+` is float32
  help     float32(…) converts it

the value has another element type
given 'C[0] = T[0]'
parse: cannot take int32 as an element of C
  at       line 5, column 8: C[0] = T[0]
  because  an element of C is float32
  help     float32(…) converts it

an index is stored as a value
given 'for i in 0:n\n  C[i] = i'
parse: cannot take index as an element of C
  at       line 6, column 10: C[i] = i
  because  an element of C is float32
  help     float32(…) converts it

a value is used as an index
given 'C[T[0]] = 1.0'
parse: cannot take int32 as an index
  at       line 5, column 3: C[T[0]] = 1.0
  because  an integer expression in coordinates and sizes is wanted here
  help     index(…) converts it

a float is used as an index
given 'C[1.5] = 1.0'
parse: cannot read this literal
  at       line 5, column 3: C[1.5] = 1.0
  because  1.5 is not an integer, and index is wanted here

a literal with a point beside an index
given 'C[0] = 1e-9 * float32(n * 0.5)'
parse: cannot read this literal
  at       line 5, column 27: C[0] = 1e-9 * float32(n * 0.5)
  because  0.5 is not an integer, and index is wanted here
  help     float64(n)

an input is written
given 'A[0, 0] = 1.0'
parse: cannot write `A`
  at       line 5, column 1: A[0, 0] = 1.0
  because  it is declared input, which is read only
  help     output, inout, local and private buffers are written

the reduce mark is unknown
given 'C[0] *= 1.0'
parse: cannot read this line
  at       line 5, column 6: C[0] *= 1.0
  because  found `*=`
  help     C[0] = C[0] * (…)

a block does not belong to a statement
given 'C[0] = 1.0\n  C[1] = 1.0'
parse: cannot place this line
  at       line 6, column 3: C[1] = 1.0
  because  no statement above it takes a block
  help     a block is indented alike, by spaces or by tabs

the indentation matches no block
given 'for i in 0:n\n    C[i] = 1.0\n  C[i] = 2.0'
parse: cannot place this line
  at       line 7, column 3: C[i] = 2.0
  because  its indentation of 2 is not one of those around it (0, 4)
  help     a block is indented alike, by spaces or by tabs

tabs and spaces are mixed
given 'for i in 0:n\n  C[i] = 1.0\n\tC[i] = 2.0'
parse: cannot place this line
  at       line 7, column 2: C[i] = 2.0
  because  its indentation of 1 is not one of those around it (0, 2)
  help     a block is indented alike, by spaces or by tabs

a bracket is not closed
given 'C[0] = (1.0 + 2.0'
parse: cannot read this line
  at       line 5, column 8: C[0] = (1.0 + 2.0
  because  `(` is never closed
  help     a `)` on the same line

a subscript is not closed
given 'C[0] = A[0, 0'
parse: cannot read this line
  at       line 5, column 9: C[0] = A[0, 0
  because  `[` is never closed
  help     a `]` on the same line

a bracket is not opened
given 'C[0] = 1.0)'
parse: cannot read this line
  at       line 5, column 11: C[0] = 1.0)
  because  `)` closes nothing

a function is unknown
given 'C[0] = cosh(1.0)'
parse: cannot call `cosh`
  at       line 5, column 8: C[0] = cosh(1.0)
  because  there is no function and no element type of that name
  help     functions: exp, log, log1p, tanh, erf, sqrt, sin, cos, floor, ceil, round, abs, min, max, pow, atan2, bitand, bitor, bitxor, shl, shr, where
  help     element types: float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool, index

a function has too many arguments
given 'C[0] = exp(1.0, 2.0)'
parse: cannot call `exp` with 2 arguments
  at       line 5, column 8: C[0] = exp(1.0, 2.0)
  because  it takes 1

a reduction stands in a loop program
given 'C[0] = sum(A[0, n], n)'
parse: cannot reduce by sum(…) here
  at       line 5, column 8: C[0] = sum(A[0, n], n)
  because  a loop program reduces by loops
  help     +=, max= or min= inside a for

a condition is not one
given 'if n + 1'
parse: cannot take index as a condition
  at       line 5, column 4: if n + 1
  because  a comparison, or several joined by and, or, not, is wanted here

a number is expected, not a condition
given 'C[0] = 1.0 + (n < 1)'
parse: cannot take a condition as an operand of `+`
  at       line 5, column 15: C[0] = 1.0 + (n < 1)
  because  it is an operation on numbers
  help     `and`, `or` and `not` combine conditions

integers are divided
given 'for i in 0:n / 2'
parse: cannot divide index by `/`
  at       line 5, column 12: for i in 0:n / 2
  because  `/` is for floating-point values
  help     `//` is the floor of the quotient

the divisor is not positive
given 'for i in 0:n // 0'
parse: cannot divide by 0
  at       line 5, column 17: for i in 0:n // 0
  because  `//` is the floor for positive divisors

a function of floats is taken of an integer
given 'T[0] = exp(T[0])'
parse: cannot take exp of int32
  at       line 5, column 8: T[0] = exp(T[0])
  because  it is defined for floating-point values
  help     exp(float32(…))

bits are taken of a float
given 'C[0] = bitand(C[0], 3)'
parse: cannot take bitand of float32
  at       line 5, column 15: C[0] = bitand(C[0], 3)
  because  it is defined for the bits of integers that are elements
  help     bitand(int64(…), …)

bits are taken of a coordinate
given 'T[0] = int32(shl(1, n))'
parse: cannot take shl of index
  at       line 5, column 18: T[0] = int32(shl(1, n))
  because  it is defined for the bits of integers that are elements
  help     shl(int64(…), …)

a literal does not fit its type
given 'T[0] = 2147483648'
parse: cannot read this literal
  at       line 5, column 8: T[0] = 2147483648
  because  int32 holds -2147483648…2147483647

a literal would round to infinity
given 'T[0] = int32(max(float32(n), 1e39))'
parse: cannot read this literal
  at       line 5, column 30: T[0] = int32(max(float32(n), 1e39))
  because  float32 holds -3.4028234663852886e+38…3.4028234663852886e+38

conditions are ordered
given 'if (n < 1) < (n < 2)'
parse: cannot order conditions by `<`
  at       line 5, column 5: if (n < 1) < (n < 2)
  because  they are equal or not
  help     `and` joins two conditions

a loop shadows a size
given 'for n in 0:4'
parse: cannot use the name n again
  at       line 5, column 5: for n in 0:4
  because  n is a size

a loop shadows a loop
given 'for i in 0:n\n  for i in 0:n'
parse: cannot use the name i again
  at       line 6, column 7: for i in 0:n
  because  i is a coordinate around this line

a word of the syntax is a name
given 'for if in 0:n'
parse: cannot use `if` as a name
  at       line 5, column 5: for if in 0:n
  because  it is a word of the syntax
  help     `if_` is free

a declaration follows a statement
given 'C[0] = 1.0\nlocal B: int8[4]'
parse: cannot place this local
  at       line 6, column 1: local B: int8[4]
  because  declarations come before the statements

an else has no if
given 'else'
parse: cannot read this line
  at       line 5, column 1: else
  because  no statement begins with `else`
  help     for, if … else, let, tile, alloc, choose, barrier, arrive, wait, fence, or buffer[index] = value

a name is not ASCII
given 'for é in 0:n'
parse: cannot use `é` as a name
  at       line 5, column 5: for é in 0:n
  because  a name is an ASCII identifier: headers for C have it, too

an elif
given 'if n > 1\n  C[0] = 1.0\nelif n > 2\n  C[0] = 2.0'
parse: cannot read this line
  at       line 7, column 1: elif n > 2
  because  no statement begins with `elif`
  help     else, and an if that is indented below it

a condition as in C
given 'if n > 1 && n < 3'
parse: cannot read this line
  at       line 5, column 10: if n > 1 && n < 3
  because  found `&`
  help     the end of the line is expected here
  help     a condition is `a and b`

a negation as in C
given 'if !(n > 1)'
parse: cannot read this line
  at       line 5, column 4: if !(n > 1)
  because  found `!`
  help     an expression is expected here
  help     a condition is `not a`

an option has no costs
given 'choose\n  option cut'
parse: cannot read this line
  at       line 6, column 13: option cut
  because  found the end of the line
  help     `costs` is expected here

a choose holds something else
given 'choose\n  C[0] = 1.0'
parse: cannot read this line
  at       line 6, column 3: C[0] = 1.0
  because  found `C`
  help     `option` is expected here

a let promises no literal range
given 'let t in 0:n = 3'
parse: cannot read this line
  at       line 5, column 12: let t in 0:n = 3
  because  found `n`
  help     an integer literal is expected here

the line says nothing known
given 'print C'
parse: cannot read this line
  at       line 5, column 1: print C
  because  no statement begins with `print`
  help     for, if … else, let, tile, alloc, choose, barrier, arrive, wait, fence, or buffer[index] = value

a character is unknown
given 'C[0] = 1.0 & 2.0'
parse: cannot read this line
  at       line 5, column 12: C[0] = 1.0 & 2.0
  because  found `&`
  help     the end of the line is expected here
  help     a condition is `a and b`

a line ends early
given 'C[0] ='
parse: cannot read this line
  at       line 5, column 7: C[0] =
  because  found the end of the line
  help     an expression is expected here

the reader expects a range
given 'for i in n'
parse: cannot read this line
  at       line 5, column 11: for i in n
  because  found the end of the line
  help     `:` is expected here""",
    globals(),
)

# The same for whole texts.
DECLARATIONS = refusals(
    r"""
the element type is unknown
given 'input A: f32[4]'
parse: cannot declare buffer A of `f32`
  at       line 1, column 10: input A: f32[4]
  because  there is no element type of that name
  help     element types: float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool

a buffer is declared twice
given 'input A: float32[4]\noutput A: float32[4]'
parse: cannot declare buffer A twice
  at       line 2, column 8: output A: float32[4]
  because  it is input A already

a size is declared twice
given 'size n in 0:9\nsize n in 0:9'
parse: cannot declare size n twice
  at       line 2, column 6: size n in 0:9
  because  a size is known by its name

no value satisfies a size
given 'size n in 1:8 multiple_of 8'
parse: cannot declare size n
  at       line 1, column 11: size n in 1:8 multiple_of 8
  because  no size has 1 <= n < 8 and is a multiple of 8
  help     size n in 0:4097 multiple_of 8

a size has no range
given 'size n multiple_of 8'
parse: cannot declare size n
  at       line 1, column 6: size n multiple_of 8
  because  it states no range: proofs are for all values of it
  help     size n in 0:4097

a size is empty
given 'size n in 5:5'
parse: cannot declare size n
  at       line 1, column 11: size n in 5:5
  because  no size has 5 <= n < 5 and is a multiple of 1
  help     size n in 0:4097 multiple_of 8

an extent is not declared
given 'input A: float32[n]'
parse: cannot use `n` here
  at       line 1, column 18: input A: float32[n]
  because  no size and no loop around it has the name n

panels name an axis that is not there
given 'constant W: float32[4, 4] @panels(0, 2, 16)'
parse: cannot read a layout
  at       line 1, column 28: constant W: float32[4, 4] @panels(0, 2, 16)
  because  axis 2: the operand has 2 axes
  help     panels(rows, columns, width)
  help     panels(rows, columns, width, interleave, multiple)

panels have too many numbers
given 'constant W: float32[4, 4] @panels(0, 1, 2, 3, 4, 5)'
parse: cannot read a layout
  at       line 1, column 28: constant W: float32[4, 4] @panels(0, 1, 2, 3, 4, 5)
  because  panels: 6 numbers stand there
  help     panels(rows, columns, width)
  help     panels(rows, columns, width, interleave, multiple)

panels of a vector
given 'constant W: float32[4] layout panels(16)'
parse: cannot read a layout
  at       line 1, column 31: constant W: float32[4] layout panels(16)
  because  panels: they have two axes, and the buffer has 1
  help     panels(rows, columns, width)
  help     panels(rows, columns, width, interleave, multiple)

words have an axis twice
given 'constant W: int8[4, 4] layout words(1: 2, 1: 4)'
parse: cannot read a layout
  at       line 1, column 31: constant W: int8[4, 4] layout words(1: 2, 1: 4)
  because  axis 1: 1 is counted twice
  help     words(0: 1, 1: 16)

a layout has no name that is known
given 'constant W: float32[4, 4] layout tiles(4)'
parse: cannot read this line
  at       line 1, column 34: constant W: float32[4, 4] layout tiles(4)
  because  found `tiles`
  help     a layout (panels, words, order, rows, digits) is expected here

digits leave one out
given 'constant W: float32[4, 4] @digits(at: 0%2 1)'
parse: cannot read a layout
  at       line 1, column 28: constant W: float32[4, 4] @digits(at: 0%2 1)
  because  axis 0: it has 4 elements, and places for 2
  help     digits(lane: 1//2%4 0%8, element: 1%2 0//8%2)

digits of an extent that is not known
given 'size n in 1:9\nconstant W: float32[n, 4] @digits(at: 0%8 1)'
parse: cannot read a layout
  at       line 2, column 28: constant W: float32[n, 4] @digits(at: 0%8 1)
  because  axis 0: its extent is not known, and there are places for 8
  help     digits(lane: 1//2%4 0%8, element: 1%2 0//8%2)

a swizzle leaves a window
given 'local S: float32[64, 8]\nalloc S[0 +: 3, 0 +: 8] layout rows swizzle(3, 4, 7)'
parse: cannot read a layout
  at       line 2, column 32: alloc S[0 +: 3, 0 +: 8] layout rows swizzle(3, 4, 7)
  because  swizzle(3, 4, 7): it moves within 128 bytes, and the operand has 96
  help     rows

an assumption is no condition
given 'size n in 0:9\nassume n + 1'
parse: cannot take index as a condition
  at       line 2, column 8: assume n + 1
  because  a comparison, or several joined by and, or, not, is wanted here

a header follows a declaration
given 'size n in 0:9\nprogram late'
parse: cannot name the program here
  at       line 2, column 1: program late
  because  its header is the first line

the name of a program has punctuation
given 'program a-b'
parse: cannot name a program 'a-b'
  at       line 1, column 12: program a-b
  because  a name is an identifier

the name of a program has a part that is empty
given 'program a..b'
parse: cannot name a program 'a..b'
  at       line 1, column 13: program a..b
  because  a name is an identifier

elements of more bits than their type
given 'constant W: int8[4] @bits(9)'
parse: cannot declare elements of W of 9 bits
  at       line 1, column 27: constant W: int8[4] @bits(9)
  because  int8 has 8

an assumption reads a buffer
given 'input A: float32[4]\nassume A[0] < 1.0'
parse: cannot access `A`
  at       line 2, column 8: assume A[0] < 1.0
  because  no buffer of that name can be read here""",
    globals(),
)


@pytest.mark.parametrize("what", STATEMENTS)
def test_a_statement_is_refused_where(what: str) -> None:
    text, refusal = STATEMENTS[what]
    with rejection(f"ParseError: {refusal}"):
        parse(HEAD + text)


@pytest.mark.parametrize("what", DECLARATIONS)
def test_a_declaration_is_refused_where(what: str) -> None:
    text, refusal = DECLARATIONS[what]
    with rejection(f"ParseError: {refusal}"):
        parse(text)


@pytest.mark.parametrize("text", ["", "\n # nothing\n"])
def test_a_text_that_says_nothing_is_refused(text: str) -> None:
    with rejection(
        "ParseError: parse: cannot read a program\n"
        "  at       line 1\n"
        "  because  the text says nothing\n"
        "  help     str(partition) is such a text"
    ):
        parse(text)


def test_what_is_no_text_is_refused() -> None:
    with rejection(
        "ParseError: parse: cannot read 3\n"
        "  because  a program is read from text\n"
        "  help     parse(path.read_text())"
    ):
        parse(3)  # type: ignore[arg-type]


def test_what_the_refused_texts_begin_with_is_accepted() -> None:
    parse(HEAD)
    assert parse("program a.b_1\n" + HEAD).name == "a.b_1"


def test_a_byte_order_mark_before_a_text_is_read_over():
    text = "size n in 0:9\noutput A: float32[n]\nfor i in 0:n\n  A[i] = 1.0\n"
    assert parse("\ufeff" + text) == parse(text)


def test_a_character_that_a_terminal_does_not_show_is_named():
    with pytest.raises(ParseError) as refused:
        parse("size n in 0:9\noutput A: float32[n]\nfor i in 0:n\n  A[i] =\u200b 1.0\n")
    assert refused.value.because == "found `U+200B ZERO WIDTH SPACE`"
