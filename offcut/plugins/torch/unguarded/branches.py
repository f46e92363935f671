"""Branches on a size that lead to the same place either way, traced without that question.

``causal = length > 1 and mask is None`` is False under a mask, whatever the length is. Python asks the length first, so torch would guard
it, and compile once more for a length of 1. Where a frame is about to branch on a size, what it does otherwise is followed:
as long as it only reads names, compares what is known, and asks torch whether it traces. Where that comes to the
same instruction with the same values, the size was not asked for anything.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.exc import ObservedException, Unsupported
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.tensor import SymNodeVariable

from offcut.plugins.torch.unguarded.opcodes import Does, does
from offcut.plugins.torch.unguarded.predicates import predicate

STEPS = 32
"""So many instructions are followed."""

_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_evaluated = SymNodeVariable.evaluate_expr


def evaluate_expr(condition: Any, graph: Any = None) -> Any:
    """What a condition on sizes is in the traced call, with a guard; where a jump does not depend on it, as if it did not jump."""
    caller = sys._getframe(1).f_locals
    jump, frame = caller.get("inst"), caller.get("self")
    name = getattr(jump, "opname", "")
    if isinstance(condition.sym_num, torch.SymBool) and does(name) is Does.JUMP:
        asked = "FALSE" in name
        try:
            if _Path(frame, jump, condition).same(not asked):
                return asked
        except (_Unseen, Unsupported, ObservedException):
            pass
    return _evaluated(condition, graph)


class _Unseen(Exception):
    """What an instruction does is not followed."""


@dataclass(frozen=True)
class _Named:
    """A global name, as an instruction loads it, and names inside of it."""

    inst: Any
    inside: tuple[str, ...] = ()


class _Path:
    """What a frame does where it does not jump.

    stack    what it has pushed since, constants as they are
    popped   how many of the values that were there before are gone
    """

    def __init__(self, frame: Any, jump: Any, condition: Any) -> None:
        self.frame, self.jump, self.condition = frame, jump, condition
        self.stack: list[Any] = []
        self.popped = 0

    def same(self, jumped: bool) -> bool:
        """Whether it comes to where the jump leads, with the same values.

        jumped   what the condition is where the frame jumps
        """
        at = self.frame.indexof[self.jump] + 1
        end = self.frame.indexof[self.jump.target]
        for _ in range(STEPS):
            if at == end:
                break
            at = self._step(self.frame.instructions[at], at)
        else:
            return False
        if "OR_POP" in self.jump.opname:
            return not self.popped and self.stack == [jumped] and isinstance(self.stack[0], bool)
        copied = self.popped == 1 and self.frame.stack[-1] is self.condition
        if copied:
            return self.stack == [jumped] and isinstance(self.stack[0], bool)
        return not self.popped and not self.stack

    def _step(self, inst: Any, at: int) -> int:
        """The place of the next instruction."""
        match does(inst.opname):
            case Does.JUMP:
                return self._jumped(inst, at)
            case Does.LOCAL:
                self._push(self.frame.symbolic_locals.get(inst.argval))
            case Does.CONSTANT:
                self.stack.append(inst.argval)
            case Does.GLOBAL:
                self.stack.append(_Named(inst))
            case Does.ATTRIBUTE:
                named = self._pop()
                if not isinstance(named, _Named):
                    raise _Unseen
                self.stack.append(_Named(named.inst, (*named.inside, str(inst.argval))))
            case Does.CALL if inst.arg == 0:
                self.stack.append(self._called(self._pop()))
            case Does.NOT:
                self.stack.append(not self._known())
            case Does.IS:
                other, one = self._pop(), self._pop()
                self.stack.append(_identical(one, other) != bool(inst.arg))
            case Does.COMPARE:
                other, one = self._pop(), self._pop()
                self.stack.append(_compared(inst.argval, one, other))
            case Does.COPY if inst.arg == 1 and self.stack:
                self.stack.append(self.stack[-1])
            case Does.POP:
                self._pop_any()
            case Does.NOTHING:
                pass
            case _:
                raise _Unseen
        return at + 1

    def _jumped(self, inst: Any, at: int) -> int:
        name, target = inst.opname, self.frame.indexof[inst.target]
        if target <= at:
            raise _Unseen
        if name == "JUMP_FORWARD":
            return int(target)
        if name.endswith(("IF_NONE", "IF_NOT_NONE")):
            return int(target) if _identical(self._pop(), None) != ("NOT" in name) else at + 1
        value = self._known()
        if value != name.endswith(("TRUE", "TRUE_OR_POP")):
            return at + 1
        if name.endswith("OR_POP"):
            self.stack.append(value)
        return int(target)

    def _push(self, value: Any) -> None:
        if value is None:
            raise _Unseen
        self.stack.append(value.value if isinstance(value, ConstantVariable) else value)

    def _pop(self) -> Any:
        if not self.stack:
            raise _Unseen
        return self.stack.pop()

    def _pop_any(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.popped += 1

    def _known(self) -> bool:
        value = self._pop()
        if not isinstance(value, bool):
            raise _Unseen
        return value

    def _called(self, named: Any) -> Any:
        """What one of torch's predicates gives, or a function that gives what one does."""
        if not isinstance(named, _Named):
            raise _Unseen
        frame = self.frame
        frame._load_global(named.inst)
        function = frame.pop()
        for name in named.inside:
            function = function.var_getattr(frame, name)
        asked = predicate(getattr(function, "fn", getattr(function, "value", None)))
        if asked is None:
            raise _Unseen
        found = VariableTracker.build(frame, asked).call_function(frame, [], {})
        if not isinstance(found, ConstantVariable):
            raise _Unseen
        return found.value


def _identical(one: Any, other: Any) -> bool:
    """Whether a value is None."""
    if other is not None:
        raise _Unseen
    return one is None


def _compared(op: str, one: Any, other: Any) -> bool:
    """Of two numbers, or of one size with itself."""
    pair = one, other
    if op not in _COMPARED:
        raise _Unseen
    if all(isinstance(side, int | float) for side in pair):
        return bool(_COMPARED[op](one, other))
    if all(isinstance(side, SymNodeVariable) for side in pair):
        left, right = (side.sym_num.node.expr for side in pair)
        if left == right:
            return bool(_COMPARED[op](0, 0))
    raise _Unseen
