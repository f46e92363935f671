"""Units, memories, depths, copies and synchronization in the text: printed, read back, and without effect on values."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import offcut as oc
from offcut import ir
from offcut.errors import ParseError
from offcut.polyhedral.sync.launches import join_options

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
    compiled = oc.compile(program, target="interpret")
    np.testing.assert_array_equal(compiled(a), a)
    plain = ir.plain(program)
    assert not plain.tokens
    assert not any(isinstance(stmt, ir.Sync) for stmt in ir.walk(plain))
    np.testing.assert_array_equal(plain.run({"A": a}, n=5), a)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("for i in 0:n  @parallel", "for i in 0:n  @thread"),
        ("for i in 0:n  @vectorize", "for i in 0:n  @lane"),
        ("for i in 0:n  @bind(thread)", "for i in 0:n  @thread"),
        ("tile i in 0 +: n  @microkernel(fma)", "tile i in 0 +: n  @cover(fma)"),
    ],
)
def test_older_texts_are_read(older: str, newer: str) -> None:
    text = "size n in 0:9\noutput C: int32[n]\n{}\n  C[i] = 1"
    assert oc.parse(text.format(older)) == oc.parse(text.format(newer))


HEAD = "size n in 0:9\nlocal L: int32[n]\nlocal M: int32[n]\noutput C: int32[n]\n"
REFUSED = {
    "token t: load -> compute room 0": "cannot declare token t",
    "token t: load -> compute\ntoken t: load -> compute": "cannot declare token t twice",
    "wait full": "cannot wait for full",
    "arrive full": "cannot arrive at full",
    "wait group -1": "cannot wait for -1 groups",
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


GOLDEN = sorted(Path(__file__).parent.parent.glob("golden/**/*.offcut"))
TOKENS = (ir.Token("full", "load", "dma.a"), ir.Token("empty", "dma.a", "load", 8, 4))


class Decorated:
    """A program with units, memories, copies and synchronization drawn for every statement."""

    def __init__(self, program: ir.Program, seed: int) -> None:
        self.draw = random.Random(seed)
        self.local = [b.name for b in program.buffers if b.kind is ir.Kind.LOCAL]
        self.program = replace(program, body=self.block(program.body, ()), tokens=TOKENS)

    def unit(self) -> str | None:
        return self.draw.choice([None, *ir.UNITS, "blockIdx.x", "dma 0"])

    def sync(self) -> ir.Sync:
        action = self.draw.choice([*ir.Action])
        named = {ir.Action.BARRIER: "warp", ir.Action.FENCE: "async", ir.Action.WAIT_GROUP: ""}
        name = named.get(action, self.draw.choice(TOKENS).name)
        sizes = [None, *(ir.Compare(">=", ir.Const(3, "index"), ir.Const(2, "index")),)]
        pending = self.draw.randrange(3) if action is ir.Action.WAIT_GROUP else 0
        return ir.Sync(action, name, self.draw.choice(sizes), pending, self.unit())

    def block(self, body: tuple[ir.Stmt, ...], loops: tuple[str, ...]) -> tuple[ir.Stmt, ...]:
        lines: list[ir.Stmt] = []
        for stmt in body:
            if self.draw.random() < 0.3:
                lines.append(self.sync())
            lines.append(self.statement(stmt, loops))
        return tuple(lines)

    def statement(self, stmt: ir.Stmt, loops: tuple[str, ...]) -> ir.Stmt:
        match stmt:
            case ir.For(name, _, _, body):
                return replace(stmt, body=self.block(body, (*loops, name)), unit=self.unit())
            case ir.Tile(axes, body):
                return replace(
                    stmt,
                    body=self.block(body, loops),
                    unit=self.unit(),
                    asynchronous=self.draw.random() < 0.5,
                    multicast=self.draw.choice([None, *loops]),
                    cover=ir.Cover("mma", tuple((a.iter, a.iter) for a in axes), (("A", "X"),)),
                )
            case ir.Alloc(buffer, _, body):
                others = [None, *(name for name in self.local if name != buffer)]
                return replace(
                    stmt,
                    body=self.block(body, loops),
                    memory=self.draw.choice([None, "shared", "acc.b"]),
                    depth=self.draw.randrange(1, 5),
                    inplace=self.draw.choice(others),
                )
            case ir.If(condition, then, other):
                return ir.If(condition, self.block(then, loops), self.block(other, loops))
            case ir.Let(body=body):
                return replace(stmt, body=self.block(body, loops))
            case ir.Choose(options):
                bodies = (self.block(option.body, loops) for option in options)
                pairs = zip(options, bodies, strict=True)
                return ir.Choose(tuple(replace(option, body=body) for option, body in pairs))
        return stmt


@pytest.mark.every(6)
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_decorated_program_is_read_back_and_computes_the_same(path: Path) -> None:
    program = oc.parse(path.read_text())
    for seed in range(2):
        decorated = Decorated(program, seed).program
        assert oc.parse(str(decorated)) == decorated
        assert not any(isinstance(stmt, ir.Sync) for stmt in ir.walk(ir.plain(decorated)))
        assert ir.plain(decorated) == ir.plain(program)


# Tokens of launches and of options that are joined have names of their own.


OPTION = """\
program options
size n in 0:99
input A: float32[n]
output B: float32[n]
token {0}: load -> warp count 1 room 1
token {1}: load -> warp count 1 room 1
for i in 0:n
  arrive {0}  @by(load)
  arrive {1}  @by(load)
  wait {0}  @by(warp)
  wait {1}  @by(warp)
  B[i] = A[i]
"""
CHOICE = """\
program options
size n in 0:99
input A: float32[n]
output B: float32[n]
choose
  option one costs 1.0
    for i in 0:n
      B[i] = A[i]
  option other costs 2.0
    for i in 0:n
      B[i] = A[i]
"""


def test_tokens_that_are_named_anew_have_no_name_of_another() -> None:
    options = [oc.parse(OPTION.format(*names)) for names in (("t", "t_2"), ("t", "t_3"))]
    joined = join_options(oc.parse(CHOICE), options)
    names = [token.name for token in joined.tokens]
    assert names == ["t", "t_2", "t_3", "t_3_2"]
    assert oc.parse(str(joined)) == joined
