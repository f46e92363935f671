"""Units, memories, depths, copies and synchronization in the text: printed, read back, and without effect on values."""

import re

import numpy as np
import pytest

import offcut as oc
from offcut import ir
from offcut.errors import ParseError

RING = """
program ring
size n in 0:65
input A: int32[8*n]
local As: int32[8*n]
local D: int32[8*n]
output C: int32[8*n]
token full: load -> warpgroup count 1 room 4
token empty: warpgroup -> load count 2 room 4
for c in 0:2  @cluster
  for k in 0:n
    alloc As[8*k +: 8] in shared depth 4
      wait empty where k >= 4
      tile i in 8*k +: 8  @by(load)  @async  @multicast(c)  @cover(tma; i=i; A=A, C=As)
        As[i] = A[i]
      wait full  @by(warpgroup)
      for g in 0:2  @warpgroup
        fence async_shared
        wait group 1
        tile i in 8*k + 4*g +: 4  @tail  @cover(copy)
          C[i] = As[i]
        arrive empty
        barrier warpgroup
        alloc D[8*k +: 4] inplace As
          C[8*k] = As[8*k]
"""


def test_the_words_are_printed_as_they_are_read() -> None:
    program = oc.parse(RING)
    assert oc.parse(str(program)) == program
    lines = {re.sub(" +", " ", line.strip()) for line in str(program).splitlines()}
    assert lines == {re.sub(" +", " ", line.strip()) for line in RING.strip().splitlines()}


def test_they_change_no_value() -> None:
    program = oc.parse(RING)
    a = np.arange(40, dtype=np.int32)
    np.testing.assert_array_equal(program.run({"A": a}, n=5), a)
    plain = ir.plain(program)
    assert not plain.tokens
    assert not any(isinstance(stmt, ir.Sync) for stmt in ir.walk(plain))
    np.testing.assert_array_equal(plain.run({"A": a}, n=5), a)


@pytest.mark.parametrize(
    ("older", "newer"),
    [("@parallel", "@thread"), ("@vectorize", "@lane"), ("@bind(thread)", "@thread")],
)
def test_older_texts_are_read(older: str, newer: str) -> None:
    text = "size n in 0:9\noutput C: int32[n]\nfor i in 0:n  {}\n  C[i] = 1"
    assert oc.parse(text.format(older)) == oc.parse(text.format(newer))


def test_a_microkernel_of_older_texts_is_a_cover() -> None:
    text = "size n in 0:9\noutput C: int32[n]\ntile i in 0 +: n  @{}(fma)\n  C[i] = 1"
    assert oc.parse(text.format("microkernel")) == oc.parse(text.format("cover"))


HEAD = "size n in 0:9\nlocal L: int32[n]\nlocal M: int32[n]\noutput C: int32[n]\n"
REFUSED = {
    "token t: load -> compute room 0": "cannot declare token t",
    "token t: load -> compute\ntoken t: load -> compute": "cannot declare token t twice",
    "wait full": "cannot wait for full",
    "arrive full": "cannot arrive at full",
    "wait group -1": "found `-`",
    "barrier": "the name of a unit is expected here",
    "barrier thread  @async": "cannot mark a barrier with @async",
    "alloc L[0 +: n] depth 0\n  C[0] = 1": "cannot have 0 windows",
    "alloc L[0 +: n] inplace L\n  C[0] = 1": "cannot hold L in the place of L",
    "alloc L[0 +: n] inplace C\n  C[0] = 1": "cannot hold L in the place of C",
    "alloc L[0 +: n] in a in b\n  C[0] = 1": "each once",
    "for i in 0:n  @thread  @lane\n  C[i] = 1": "it has such a mark already",
    "for i in 0:n  @thred\n  C[i] = 1": "cannot mark a for with @thred",
    "tile i in 0 +: n  @multicast(c)\n  C[i] = 1": "cannot copy for every iteration of c",
    "tile i in 0 +: n  @cover(fma; i)\n  C[i] = 1": "cannot cover a tile by `fma; i`",
    "tile i in 0 +: n  @async  @async\n  C[i] = 1": "it has such a mark already",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match=re.escape(REFUSED[text])):
        oc.parse(HEAD + text)
