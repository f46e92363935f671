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


# The text after HEAD, the line and the column of what is wrong, and the refusal.
STATEMENTS = refusals(
    r"""
given 'for i in 0:n:\n  C[i] = 1.0', 5, 14
cannot read this line
  because  it ends in `:`
  help     a loop has no colon at its end

given 'for i in range(n)\n  C[i] = 1.0', 5, 10
cannot read this line
  because  found `range`
  help     for i in 0:n is a loop up to n - 1

given 'C[0] = B[0]', 5, 8
cannot access `B`
  because  no buffer of that name is declared
  help     declared: A, T, C

given 'C[0] = A[n]', 5, 11
cannot access `A` with 1 index
  because  A has 2 axes
  help     A[…, …]

given 'C[0, 1] = 1.0', 5, 7
cannot access `C` with 2 indices
  because  C has 1 axis
  help     C[…]

given 'for i in 0:k', 5, 12
cannot use `k` here
  because  no size and no loop around it has the name k
  help     in scope: n

given 'for i in 0:n\nC[i] = 1.0', 6, 3
cannot use `i` here
  because  no size and no loop around it has the name i
  help     for i contains what is indented below it: indent this line
  help     in scope: n

given 'tile i in 0 +: 4, j in i +: 4', 5, 24
cannot use `i` here
  because  no size and no loop around it has the name i
  help     in scope: n

given 'C[0] = A', 5, 8
cannot use `A` here
  because  A is a buffer
  help     A[…] reads an element

given 'for i in 0:n  @bdy', 5, 16
cannot mark a for with @bdy
  because  there is no such mark
  help     marks of a for: @whole, @body, @tail, @thread, @lane, @unroll, @cluster, @block, @warpgroup, @warp, @load, @compute, @store, @bind(…)

given 'tile i in 0 +: 4  @body  @tail', 5, 27
cannot mark a tile with @tail
  because  it has such a mark already
  help     marks of a tile: @whole, @body, @tail, @full, @guard, @mask, @pad, @shift, @by(…), @async, @multicast(…), @cover(…)

given 'C[0] = A[0, 0] + T[0]', 5, 18
cannot take int32 as an operand of `+`
  because  an operand of `+` is float32
  help     float32(…) converts it

given 'for i in 0:n\n  C[i] = i', 6, 10
cannot take index as an element of C
  because  an element of C is float32
  help     float32(…) converts it

given 'C[T[0]] = 1.0', 5, 3
cannot take int32 as an index
  because  an integer expression in coordinates and sizes is wanted here
  help     index(…) converts it

given 'C[1.5] = 1.0', 5, 3
cannot read this literal
  because  1.5 is not an integer, and index is wanted here

given 'C[0] = 1e-9 * float32(n * 0.5)', 5, 27
cannot read this literal
  because  0.5 is not an integer, and index is wanted here
  help     float64(n)

given 'A[0, 0] = 1.0', 5, 1
cannot write `A`
  because  it is declared input, which is read only
  help     output, inout, local and private buffers are written

given 'C[0] *= 1.0', 5, 6
cannot read this line
  because  found `*=`
  help     C[0] = C[0] * (…)

given 'C[0] = 1.0\n  C[1] = 1.0', 6, 3
cannot place this line
  because  no statement above it takes a block
  help     a block is indented alike, by spaces or by tabs

given 'for i in 0:n\n    C[i] = 1.0\n  C[i] = 2.0', 7, 3
cannot place this line
  because  its indentation of 2 is not one of those around it (0, 4)
  help     a block is indented alike, by spaces or by tabs

given 'for i in 0:n\n  C[i] = 1.0\n\tC[i] = 2.0', 7, 2
cannot place this line
  because  its indentation of 1 is not one of those around it (0, 2)
  help     a block is indented alike, by spaces or by tabs

given 'C[0] = (1.0 + 2.0', 5, 8
cannot read this line
  because  `(` is never closed
  help     a `)` on the same line

given 'C[0] = 1.0)', 5, 11
cannot read this line
  because  `)` closes nothing

given 'C[0] = cosh(1.0)', 5, 8
cannot call `cosh`
  because  there is no function and no element type of that name
  help     functions: exp, log, log1p, tanh, erf, sqrt, sin, cos, floor, ceil, round, abs, min, max, pow, atan2, bitand, bitor, bitxor, shl, shr, where
  help     element types: float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool, index

given 'C[0] = exp(1.0, 2.0)', 5, 8
cannot call `exp` with 2 arguments
  because  it takes 1

given 'C[0] = sum(A[0, n], n)', 5, 8
cannot reduce by sum(…) here
  because  a loop program reduces by loops
  help     +=, max= or min= inside a for

given 'if n + 1', 5, 4
cannot take index as a condition
  because  a comparison, or several joined by and, or, not, is wanted here

given 'C[0] = 1.0 + (n < 1)', 5, 15
cannot take a condition as an operand of `+`
  because  it is an operation on numbers
  help     `and`, `or` and `not` combine conditions

given 'for i in 0:n / 2', 5, 12
cannot divide index by `/`
  because  `/` is for floating-point values
  help     `//` is the floor of the quotient

given 'for i in 0:n // 0', 5, 17
cannot divide by 0
  because  `//` is the floor for positive divisors

given 'T[0] = exp(T[0])', 5, 8
cannot take exp of int32
  because  it is defined for floating-point values
  help     exp(float32(…))

given 'C[0] = bitand(C[0], 3)', 5, 15
cannot take bitand of float32
  because  it is defined for the bits of integers that are elements
  help     bitand(int64(…), …)

given 'T[0] = 2147483648', 5, 8
cannot read this literal
  because  int32 holds -2147483648…2147483647

given 'T[0] = int32(max(float32(n), 1e39))', 5, 30
cannot read this literal
  because  float32 holds -3.4028234663852886e+38…3.4028234663852886e+38

given 'if (n < 1) < (n < 2)', 5, 5
cannot order conditions by `<`
  because  they are equal or not
  help     `and` joins two conditions

given 'for n in 0:4', 5, 5
cannot use the name n again
  because  n is a size

given 'for i in 0:n\n  for i in 0:n', 6, 7
cannot use the name i again
  because  i is a coordinate around this line

given 'for if in 0:n', 5, 5
cannot use `if` as a name
  because  it is a word of the syntax
  help     `if_` is free

given 'C[0] = 1.0\nlocal B: int8[4]', 6, 1
cannot place this local
  because  declarations come before the statements

given 'else', 5, 1
cannot read this line
  because  no statement begins with `else`
  help     for, if … else, let, tile, alloc, choose, barrier, arrive, wait, fence, or buffer[index] = value

given 'for é in 0:n', 5, 5
cannot use `é` as a name
  because  a name is an ASCII identifier: headers for C have it, too

given 'if n > 1\n  C[0] = 1.0\nelif n > 2\n  C[0] = 2.0', 7, 1
cannot read this line
  because  no statement begins with `elif`
  help     else, and an if that is indented below it

given 'if n > 1 && n < 3', 5, 10
cannot read this line
  because  found `&`
  help     the end of the line is expected here
  help     a condition is `a and b`

given 'if !(n > 1)', 5, 4
cannot read this line
  because  found `!`
  help     an expression is expected here
  help     a condition is `not a`

given 'choose\n  option cut', 6, 13
cannot read this line
  because  found the end of the line
  help     `costs` is expected here

given 'choose\n  C[0] = 1.0', 6, 3
cannot read this line
  because  found `C`
  help     `option` is expected here

given 'let t in 0:n = 3', 5, 12
cannot read this line
  because  found `n`
  help     an integer literal is expected here

given 'C[0] =', 5, 7
cannot read this line
  because  found the end of the line
  help     an expression is expected here

given 'for i in n', 5, 11
cannot read this line
  because  found the end of the line
  help     `:` is expected here
""",
    globals(),
)

# The same of whole texts.
DECLARATIONS = refusals(
    r"""
given 'input A: f32[4]', 1, 10
cannot declare buffer A of `f32`
  because  there is no element type of that name
  help     element types: float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool

given 'input A: float32[4]\noutput A: float32[4]', 2, 8
cannot declare buffer A twice
  because  it is input A already

given 'size n in 0:9\nsize n in 0:9', 2, 6
cannot declare size n twice
  because  a size is known by its name

given 'size n in 1:8 multiple_of 8', 1, 11
cannot declare size n
  because  no size has 1 <= n < 8 and is a multiple of 8
  help     size n in 0:4097 multiple_of 8

given 'size n multiple_of 8', 1, 6
cannot declare size n
  because  it states no range: proofs are for all values of it
  help     size n in 0:4097

given 'constant W: float32[4, 4] @panels(0, 2, 16)', 1, 28
cannot read a layout
  because  axis 2: the operand has 2 axes
  help     panels(rows, columns, width)
  help     panels(rows, columns, width, interleave, multiple)

given 'constant W: float32[4, 4] @panels(0, 1, 2, 3, 4, 5)', 1, 28
cannot read a layout
  because  panels: 6 numbers stand there
  help     panels(rows, columns, width)
  help     panels(rows, columns, width, interleave, multiple)

given 'constant W: float32[4] layout panels(16)', 1, 31
cannot read a layout
  because  panels: they have two axes, and the buffer has 1
  help     panels(rows, columns, width)
  help     panels(rows, columns, width, interleave, multiple)

given 'constant W: int8[4, 4] layout words(1: 2, 1: 4)', 1, 31
cannot read a layout
  because  axis 1: 1 is counted twice
  help     words(0: 1, 1: 16)

given 'constant W: float32[4, 4] layout tiles(4)', 1, 34
cannot read this line
  because  found `tiles`
  help     a layout (panels, words, order, rows, digits) is expected here

given 'constant W: float32[4, 4] @digits(at: 0%2 1)', 1, 28
cannot read a layout
  because  axis 0: it has 4 elements, and places for 2
  help     digits(lane: 1//2%4 0%8, element: 1%2 0//8%2)

given 'size n in 1:9\nconstant W: float32[n, 4] @digits(at: 0%8 1)', 2, 28
cannot read a layout
  because  axis 0: its extent is not known, and there are places for 8
  help     digits(lane: 1//2%4 0%8, element: 1%2 0//8%2)

given 'local S: float32[64, 8]\nalloc S[0 +: 3, 0 +: 8] layout rows swizzle(3, 4, 7)', 2, 32
cannot read a layout
  because  swizzle(3, 4, 7): it moves within 128 bytes, and the operand has 96
  help     rows

given 'size n in 0:9\nprogram late', 2, 1
cannot name the program here
  because  its header is the first line

given 'program a-b', 1, 12
cannot name a program 'a-b'
  because  a name is an identifier

given 'constant W: int8[4] @bits(9)', 1, 27
cannot declare elements of W of 9 bits
  because  int8 has 8

given 'input A: float32[4]\nassume A[0] < 1.0', 2, 8
cannot access `A`
  because  no buffer of that name can be read here
""",
    globals(),
)


def check_refused(text: str, line: int, column: int, refusal: str) -> None:
    """Check that a text is refused at a place in it; `refusal` leaves out the place."""
    refused, because = refusal.split("\n", 1)
    shown = text.split("\n")[line - 1].strip()
    with rejection(
        f"ParseError: parse: {refused}\n  at       line {line}, column {column}: {shown}\n{because}"
    ):
        parse(text)


@pytest.mark.parametrize("what", STATEMENTS)
def test_a_statement_is_refused_where(what: str) -> None:
    text, *refusal = STATEMENTS[what]
    check_refused(HEAD + text, *refusal)


@pytest.mark.parametrize("what", DECLARATIONS)
def test_a_declaration_is_refused_where(what: str) -> None:
    check_refused(*DECLARATIONS[what])


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
