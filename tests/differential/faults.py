"""Small faults for the lowering, each of which the net must find: what is planted, and where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A text of a module of `offcut.backends`, which stands there once, and what takes its place."""

    name: str
    module: str
    before: str
    after: str

    @property
    def full(self) -> str:
        """The module's full name."""
        return f"offcut.backends.{self.module}"


FAULTS = (
    # What a microkernel covers, and what it starts from.
    Fault(
        "any stored value is taken for a zero",
        "cpu.covers",
        "return same and value == 0 and copysign(1.0, value) > 0",
        "return same",
    ),
    Fault(
        "a start that is no literal is dropped",
        "cpu.covers",
        "case Store(buffer, index, Const(value), None) if buffer == total.buffer:\n"
        "            same = list(map(ix.simplify, index)) == list(map(ix.simplify, total.index))\n"
        "            return same and value == 0 and copysign(1.0, value) > 0",
        "case Store(buffer, index, value, None) if buffer == total.buffer:\n"
        "            return True",
    ),
    Fault(
        "a start at another element is taken for the sum's",
        "cpu.covers",
        "same = list(map(ix.simplify, index)) == list(map(ix.simplify, total.index))",
        "same = True",
    ),
    Fault(
        "a sum always starts from zero",
        "cpu.row_blocks",
        'self.accumulate = "0" if plan.fresh else "1"',
        'self.accumulate = "0"',
    ),
    Fault(
        "a sum always adds to what is there",
        "cpu.row_blocks",
        'self.accumulate = "0" if plan.fresh else "1"',
        'self.accumulate = "1"',
    ),
    Fault(
        "bounds that differ between instances are taken for those of the first",
        "cpu.covers",
        "if variables(bound) & self.axes.keys() or _reads_memory(bound):",
        "if _reads_memory(bound):",
    ),
    Fault(
        "columns of the result that lie apart are taken for neighbours",
        "cpu.covers",
        'if low.along(held, index, Lanes(2, columns.iter)) != "next":\n'
        '            return f"{shown} does',
        'if False:\n            return f"{shown} does',
    ),
    Fault(
        "columns of B that lie apart are taken for neighbours",
        "cpu.covers",
        'beside = low.along(low.memory[b.buffer], b.index, Lanes(2, columns.iter)) == "next"',
        "beside = True",
    ),
    Fault(
        "a padded tile does not take in what it adds to",
        "cpu.row_blocks",
        "if padded and not begins_with_store(target, self.tile.body):",
        "if False:",
    ),
    Fault(
        "a padded tile is not copied out",
        "cpu.row_blocks",
        "        if padded:\n            self.copy(target, memory, inwards=False)",
        "        if False:\n            self.copy(target, memory, inwards=False)",
    ),
    Fault(
        "statements after the sum are dropped",
        "cpu.row_blocks",
        "        if pending:\n            self.low.vectors(self.tile, pending, memory)\n        if padded",
        "        if padded",
    ),
    Fault(
        "statements before the sum run after it",
        "cpu.row_blocks",
        "                if pending:\n"
        "                    self.low.vectors(self.tile, pending, memory)\n"
        "                    pending = []\n"
        "                with self.low.placed(memory):\n"
        "                    self.within(part.around, part)\n",
        "                with self.low.placed(memory):\n"
        "                    self.within(part.around, part)\n",
    ),
    Fault(
        "a block of no rows is called",
        "cpu.row_blocks",
        "return limited or self.low.range_of(axis.extent)[0] < 1",
        "return False",
    ),
    Fault(
        "an empty loop of terms counts down",
        "cpu.row_blocks",
        "if low.range_of(ix.sub(self.loop.hi, self.loop.lo))[0] < 0:",
        "if False:",
    ),
    Fault(
        "the terms start at zero wherever the loop does",
        "cpu.row_blocks",
        "depth = (plan.loop.iter, low.scalar(plan.loop.lo))",
        'depth = (plan.loop.iter, "0")',
    ),
    Fault(
        "the rows of A are one element apart",
        "cpu.row_blocks",
        "row, depth = (self.step(memory, load.index, axis) for axis in along)",
        "row, depth = str(self.item), self.step(memory, load.index, along[1])",
    ),
    Fault(
        "the last vector of columns is one short",
        "cpu.row_blocks",
        "last = covered - (width - 1) * lanes",
        "last = max(covered - (width - 1) * lanes - 1, 1)",
    ),
    Fault(
        "the columns move by one vector too few",
        "cpu.row_blocks",
        "panel = columns // self.block.panel",
        "panel = max(columns // self.block.panel - 1, 0)",
    ),
    Fault(
        "the row of a height is that of the next",
        "cpu.row_blocks",
        "position = ir.sub(self.f, self.rows, str(self.heights[0]))",
        "position = ir.sub(self.f, self.rows, str(min(self.heights[0] + 1, self.heights[-1])))",
    ),
    # Microkernels.
    Fault(
        "rows two and three of a group change places",
        "cpu.fma",
        'row = ("%a_row", "%a_row2", "%a_row3")[r % 4 - 1]',
        'row = ("%a_row", "%a_row3", "%a_row2")[r % 4 - 1]',
    ),
    Fault(
        "the last column's mask is one wider",
        "cpu.fma",
        'yield f"  %{name} = icmp ult {v} <{index}>, %{name}_all"',
        'yield f"  %{name} = icmp ule {v} <{index}>, %{name}_all"',
    ),
    Fault(
        "the steps that are left over are not run",
        "cpu.fma",
        'yield f"  %left = sub i64 {depth}, %many"',
        'yield f"  %left = sub i64 %many, %many"',
    ),
    Fault(
        "a product is subtracted",
        "cpu.fma",
        'yield f"  {new} = fadd {self.v} {product}, {c}"',
        'yield f"  {new} = fsub {self.v} {c}, {product}"',
    ),
    Fault(
        "bytes of A are taken for those of B",
        "cpu.vnni",
        "yield _dot(new, b, a, c) if self.signed else _dot(new, a, b, c)",
        "yield _dot(new, b, a, c)",
    ),
    Fault(
        "the last terms of bytes are left out",
        "cpu.vnni",
        'yield "  %any_odd = icmp ne i64 %odd, 0"',
        'yield "  %any_odd = icmp ugt i64 %odd, 1"',
    ),
    Fault(
        "the lower half of a tile register adds to the upper one's rows",
        "cpu.tile_code",
        'yield f"  %{name}_lower = mul i64 %upper, %a_now_row"',
        'yield f"  %{name}_lower = mul i64 0, %a_now_row"',
    ),
    # Vectors.
    Fault(
        "what is left of a row is not run",
        "cpu.vectors",
        "if width == 1 or (known is not None and known % width == 0):",
        "if width == 1 or known is not None:",
    ),
    Fault(
        "the mask of a row's rest is one lane short",
        "cpu.vectors",
        'limit = e.splat(hidden, "index")',
        'limit = e.splat(ir.sub(self.f, hidden, "1"), "index")',
    ),
    Fault(
        "a tile's limit is not asked",
        "cpu.vectors",
        "            extent = ir.minimum(self.f, extent, room)",
        "            extent = ir.maximum(self.f, extent, extent)",
    ),
    Fault(
        "conditions of a tile are dropped",
        "cpu.vectors",
        "            body = (If(condition, tuple(body)),)",
        "            body = tuple(body)",
    ),
    Fault(
        "a transposed square's last rows are written where they are not",
        "cpu.vectors",
        'deep = f.let(f"icmp sge i64 {left[0]}, {width}")',
        'deep = f.let(f"icmp sge i64 {left[0]}, 1")',
    ),
    Fault(
        "a register is not loaded before it is added to",
        "cpu.instances",
        "if buffer in self.memory and not begins_with_store(buffer, body):",
        "if False:",
    ),
    Fault(
        "a register stands for several elements",
        "cpu.accesses",
        "and len(found) <= 1",
        "and len(found) <= 2",
    ),
    Fault(
        "the other branch runs in the lanes of the first",
        "cpu.instances",
        "self.vector_block(other, self.on(lanes, fails), slots)",
        "self.vector_block(other, self.on(lanes, holds), slots)",
    ),
    Fault(
        "lanes whose loop has ended go on",
        "cpu.instances",
        'for op, bound in (("<=", loop.lo), (">", loop.hi)):',
        'for op, bound in (("<=", loop.lo),):',
    ),
    Fault(
        "lanes whose loop has not begun run already",
        "cpu.instances",
        'for op, bound in (("<=", loop.lo), (">", loop.hi)):',
        'for op, bound in ((">", loop.hi),):',
    ),
    Fault(
        "a lane that is off changes its register",
        "cpu.instances",
        "            result = e.select(lanes.path, result, old, dtype)",
        "            pass",
    ),
    Fault(
        "elements that lie apart are taken for neighbours",
        "cpu.addressing",
        '            return "apart"\n        if len(moving) != 1',
        '            return "next"\n        if len(moving) != 1',
    ),
    Fault(
        "every second element is taken for the next",
        "cpu.addressing",
        "if len(moving) != 1 or steps[moving[0]] != 1:",
        "if len(moving) != 1:",
    ),
    Fault(
        "masked lanes are written",
        "cpu.addressing",
        "            return lanes.mask or lanes.path",
        "            return lanes.path",
    ),
    Fault(
        "lanes that are off read one element",
        "cpu.addressing",
        "            if lanes.path is None:\n"
        '                element = self.f.let(f"load {STORED[dtype]}, ptr {address}, align {align}")',
        "            if True:\n"
        '                element = self.f.let(f"load {STORED[dtype]}, ptr {address}, align {align}")',
    ),
    Fault(
        "a remainder of a negative number is negative",
        "cpu.elements",
        "            return self.select(below, again, rest, dtype)",
        "            return rest",
    ),
    Fault(
        "a quotient is rounded toward zero",
        "cpu.elements",
        '        return self.f.let(f"sub {kind} {quotient}, {one}")',
        "        return quotient",
    ),
    Fault(
        "bytes without a sign are extended with one",
        "cpu.elements",
        'word = "trunc" if wide_bits < narrow else "zext" if old in ("uint8", "bool") else "sext"',
        'word = "trunc" if wide_bits < narrow else "sext"',
    ),
    Fault(
        "a maximum of floats forgets NaN",
        "cpu.elements",
        'name = f"llvm.{op}imum.v{self.lanes}{_INTRINSIC[self.computed(dtype)]}"',
        'name = f"llvm.{op}num.v{self.lanes}{_INTRINSIC[self.computed(dtype)]}"',
    ),
    Fault(
        "unequal is false of NaN",
        "cpu.elements",
        '"==": "oeq", "!=": "une"}',
        '"==": "oeq", "!=": "one"}',
    ),
    Fault(
        "a 16-bit float is not rounded after an operation",
        "cpu.elements",
        "            return self.rounded(result, dtype)",
        "            return result",
    ),
    Fault(
        "the branches of a value change places",
        "cpu.expressions",
        "return e.select(holds, sides[0], sides[1], dtype_of(then))",
        "return e.select(holds, sides[1], sides[0], dtype_of(then))",
    ),
    Fault(
        "a difference is turned around",
        "cpu.expressions",
        "                return e.binary(op, dtype, x, y)",
        "                return e.binary(op, dtype, y, x)",
    ),
    Fault(
        "a condition that differs between lanes is asked of the first",
        "cpu.expressions",
        "        return lanes.axis in variables(expr) or any(",
        "        return any(",
    ),
    # Reductions as lanes, packing, programs.
    Fault(
        "a sum in lanes forgets what was there",
        "cpu.instances",
        "                new = self.combined(store, old, totals[store.buffer])\n"
        "                self.save(store.buffer, store.index, new, lanes)",
        "                new = totals[store.buffer]\n"
        "                self.save(store.buffer, store.index, new, lanes)",
    ),
    Fault(
        "lanes without a term are added",
        "cpu.reductions",
        "return (new if lanes.mask is None else e.select(lanes.mask, new, old[0], self.dtype),)",
        "return (new,)",
    ),
    Fault(
        "accumulators of a reduction are left out",
        "cpu.reductions",
        "[reducer.merged(a, b) for reducer, a, b in zip(self.reducers, *pair, strict=True)]",
        "[a for reducer, a, b in zip(self.reducers, *pair, strict=True)]",
    ),
    Fault(
        "a maximum in lanes forgets NaN",
        "cpu.reductions",
        'return f.let(f"select i1 {met}, {e.kind(self.dtype)} {nan}, {e.kind(self.dtype)} {total}")',
        "return total",
    ),
    Fault(
        "rows past the depth of a packed operand hold what lies there",
        "cpu.interleave",
        'inside = f.let(f"icmp slt i64 {row}, {last}")',
        'inside = f.let(f"icmp sle i64 {row}, {last}")',
    ),
    Fault(
        "a loop runs to its bound, and one further",
        "cpu.ir",
        'more = self.let(f"icmp slt i64 {now}, {hi}")',
        'more = self.let(f"icmp sle i64 {now}, {hi}")',
    ),
    Fault(
        "the first of two equal options is not the one that runs, nor any other",
        "cpu.lower",
        '            self.block(option.body)\n            self.f.do(f"br label {end}")',
        '            self.f.do(f"br label {end}")',
    ),
    Fault(
        "what a program updates is not taken in",
        "cpu.lower",
        "            rows(0, source.base, target.base)",
        "            pass",
    ),
    Fault(
        "a window of a buffer starts at its first element",
        "cpu.lower",
        "replace(memory, origins=tuple(self.scalar(at) for at, _ in alloc.axes))",
        "replace(memory, origins=memory.origins)",
    ),
    Fault(
        "a condition's other branch is not run",
        "cpu.lower",
        "        with self.assumed(condition, False):\n            self.block(other)",
        "        with self.assumed(condition, False):\n            pass",
    ),
    Fault(
        "what a sum begins with is added to nothing",
        "raising",
        "        if _is_neutral(start, stmt.reduce):",
        "        if True:",
    ),
    Fault(
        "statements are run one after the other whatever they carry",
        "raising",
        "    if not all(_in_turn(one, scopes) for one in dependences(program)):",
        "    if False:",
    ),
    Fault(
        "a loop that carries a dependence runs in lanes",
        "cpu.vectorize",
        "        if carried is None or carried:",
        "        if carried is None:",
    ),
    Fault(
        "iterations that need each other run side by side",
        "cpu.parallel",
        "        return not left or self.by_sets(left, path)",
        "        return True",
    ),
    Fault(
        "threads do not wait for what others write",
        "cpu.threaded",
        "        return several and self.meetings.conflict(stmt, earlier)",
        "        return False",
    ),
    Fault(
        "the last thread's iterations are one short",
        "cpu.threaded",
        "ends = ir.add(f, lo, first), ir.add(f, lo, end)",
        'ends = ir.add(f, lo, first), ir.sub(f, ir.add(f, lo, end), "1")',
    ),
    Fault(
        "an access that is not proved is not asked",
        "inside",
        "        if unproved:",
        "        if False:",
    ),
)
