"""Random programs, separated: the same stores of the same values, in the same order, at every size.

What runs is told by an interpreter of its own, which knows no type and no array: an element that was
never written holds a number that its name and indices make.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import offcut as oc
from offcut import Program
from offcut.core import expr as e
from offcut.ir import For, If, Stmt, Store
from offcut.partition.separate import separate

SIZES = ((0, 0), (0, 1), (1, 0), (1, 3), (3, 2), (2, 5), (4, 7), (9, 0), (10, 11), (13, 6))
Memory = dict[tuple[str, tuple[int, ...]], int]


class Writer:
    """The text of a random program: bounds and conditions are sums, quotients, remainders, min, max."""

    def __init__(self, seed: int) -> None:
        self.random, self.around, self.loops = random.Random(seed), list[str](), 0

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def name(self) -> str:
        return self.pick(*self.around * 3, "n", "m")

    def index(self, depth: int) -> str:
        if depth == 0 or self.random.random() < 0.3:
            return self.pick(self.name(), self.name(), str(self.random.randint(-3, 6)))
        a, b, factor = self.index(depth - 1), self.index(depth - 1), self.random.randint(2, 5)
        both = (f"({a} + {b})", f"({a} - {b})", f"min({a}, {b})", f"max({a}, {b})")
        return self.pick(*both, f"{factor}*{a}", f"({a})//{factor}", f"({a}) % {factor}")

    def condition(self) -> str:
        op = self.pick("<", "<=", ">", ">=", "==", "!=")
        asked = f"{self.index(2)} {op} {self.index(1)}"
        if self.random.random() < 0.1:
            asked = f"X[{self.index(1)}] > 0"
        joined = self.random.random()
        if joined < 0.3:
            return f"({asked}) {'and' if joined < 0.15 else 'or'} ({self.condition()})"
        return f"not ({asked})" if joined < 0.4 else asked

    def value(self) -> str:
        known = (f"int32({self.name()})", "1", f"X[{self.index(2)}]", f"G[{self.index(1)}, 1]")
        if self.random.random() < 0.3:
            return f"where({self.condition()}, {self.pick(*known)}, {self.pick('0', *known)})"
        return self.pick(*known)

    def store(self, indent: str) -> str:
        op = self.pick("=", "=", "+=", "max=")
        return f"{indent}G[{self.index(1)}, {self.pick('0', self.index(1))}] {op} {self.value()}"

    def block(self, indent: str, depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.choice((1, 1, 2))):
            what = self.random.random()
            if depth and what < 0.6:
                lines += self.loop(indent, depth)
            elif what < 0.8:
                lines.append(f"{indent}if {self.condition()}")
                nested = depth > 0 and self.random.random() < 0.4
                inner = f"{indent}  "
                lines += self.block(inner, depth - 1) if nested else [self.store(inner)]
                if self.random.random() < 0.3:
                    lines += [f"{indent}else", self.store(inner)]
            else:
                lines.append(self.store(indent))
        return lines

    def loop(self, indent: str, depth: int) -> list[str]:
        self.loops += 1
        name = f"i{self.loops}"
        low = self.pick("0", "0", "0", str(self.random.randint(-3, 3)), self.index(2))
        shifted = f"{self.index(1)} + {self.random.randint(0, 4)}"
        high = self.pick("n", "n", "m", shifted, self.index(2))
        head = f"{indent}for {name} in {low}:{high}{self.pick('', '', '', ':2', ':3')}"
        self.around.append(name)
        body = self.block(f"{indent}  ", depth - 1)
        self.around.pop()
        return [head, *body]

    def program(self) -> Program:
        lines = ["program drawn", "size n in 0:60", "size m in 0:60"]
        lines += ["input X: int32[n]", "inout G: int32[n, n]"]
        for _ in range(self.random.choice((1, 1, 2))):
            lines += self.loop("", self.random.choice((1, 2, 2, 3)))
        return oc.parse("\n".join(lines) + "\n")


def value(expr: e.Expr, at: Mapping[str, int], memory: Memory) -> Any:
    """What an expression is; what is read of memory is kept there."""

    def of(part: e.Expr) -> Any:
        return value(part, at, memory)

    match expr:
        case e.Const(number, _):
            return number
        case e.Var(name):
            return at[name]
        case e.Load(buffer, index, _):
            element = buffer, tuple(map(of, index))
            return memory.setdefault(element, initial(*element))
        case e.Binary(op, a, b):
            x, y = of(a), of(b)
            match op:
                case "+":
                    return x + y
                case "-":
                    return x - y
                case "*":
                    return x * y
                case "//":
                    return x // y
                case "%":
                    return x % y
                case _:
                    return min(x, y) if op == "min" else max(x, y)
        case e.Unary("neg", a) | e.Cast(a, _):
            return -of(a) if isinstance(expr, e.Unary) else of(a)
        case e.Select(condition, then, other):
            return of(then) if of(condition) else of(other)
        case e.Compare(op, a, b):
            x, y = of(a), of(b)
            order = {"<": x < y, "<=": x <= y, "==": x == y}
            return order[op] if op in order else not order[{">": "<=", ">=": "<", "!=": "=="}[op]]
        case e.Logic("not", (arg,)):
            return not of(arg)
        case e.Logic(op, args):
            return all(map(of, args)) if op == "and" else any(map(of, args))
    raise AssertionError(expr)


def initial(buffer: str, index: tuple[int, ...]) -> int:
    """What an element holds before it is written."""
    return sum((3 * k + 7) * x for k, x in enumerate((len(buffer), *index))) % 7 - 3


def run(body: Sequence[Stmt], at: dict[str, int], memory: Memory, log: list[object]) -> None:
    """Append every store that may change something: its element, its operator and what it leaves."""
    for stmt in body:
        match stmt:
            case For(name, lo, hi, inner):
                for x in range(value(lo, at, memory), value(hi, at, memory)):
                    run(inner, {**at, name: x}, memory, log)
            case If(condition, then, other):
                run(then if value(condition, at, memory) else other, at, memory, log)
            case Store(buffer, index, term, reduce):
                element = buffer, tuple(value(part, at, memory) for part in index)
                new, old = value(term, at, memory), memory.get(element, initial(*element))
                if reduce == "sum" and new == 0:
                    continue
                after = {"sum": old + new, "max": max(old, new), None: new}[reduce]
                memory[element] = after
                log.append((element, reduce, after))
            case _:
                raise AssertionError(stmt)


def stores(program: Program, n: int, m: int) -> list[object]:
    """Every store that runs, in order."""
    log: list[object] = []
    run(program.body, {"n": n, "m": m}, {}, log)
    return log


def check(seeds: range) -> int:
    """How many of these programs have another text when separated; each one does the same."""
    changed = 0
    for seed in seeds:
        program = Writer(seed).program()
        made = separate(program).program
        changed += made.body != program.body
        for n, m in SIZES:
            assert stores(made, n, m) == stores(program, n, m), f"seed {seed}, n = {n}, m = {m}"
    return changed


def test_separated_programs_store_the_same_in_the_same_order() -> None:
    assert check(range(40)) > 25


@pytest.mark.slow
def test_many_separated_programs_store_the_same_in_the_same_order() -> None:
    assert check(range(40, 1500)) > 1000
