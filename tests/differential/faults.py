"""Small faults for the lowering, each of which the net must find: what is planted, and where."""

from __future__ import annotations

from dataclasses import dataclass

from tests.facade import SOURCES


@dataclass(frozen=True)
class Fault:
    """A text of a module of `offcut`, one of the facade's `SOURCES`, which stands there once, and what takes its place."""

    name: str
    module: str
    before: str
    after: str

    @property
    def full(self) -> str:
        """The module's full name."""
        return f"offcut.{SOURCES[self.module]}"


FAULTS = (
    # What a microkernel covers, and what it starts from.
    Fault(
        "any stored value is taken for a zero",
        "judge",
        "return value.value == start and copysign(1.0, value.value) == copysign(1.0, start)",
        "return True",
    ),
    Fault(
        "a start that is no literal is dropped",
        "judge",
        "if not isinstance(value, Const) or kernel.reducer is None:\n        return False",
        "if not isinstance(value, Const):\n        return kernel.reducer is not None",
    ),
    Fault(
        "a start at another element is taken for the sum's",
        "judge",
        "same = list(map(ix.simplify, stmt.index)) == list(map(ix.simplify, covered.store.index))",
        "same = True",
    ),
    Fault(
        "a sum always starts from zero",
        "row_blocks",
        'self.accumulate = "0" if plan.start == "fresh" else "1"',
        'self.accumulate = "0"',
    ),
    Fault(
        "a sum always adds to what is there",
        "row_blocks",
        'self.accumulate = "0" if plan.start == "fresh" else "1"',
        'self.accumulate = "1"',
    ),
    Fault(
        "bounds that differ between instances are taken for those of the first",
        "judge",
        "if variables(bound) & self.axes.keys() or self.reads_results(bound):",
        "if self.reads_results(bound):",
    ),
    Fault(
        "columns of the result that lie apart are taken for neighbours",
        "places",
        "if layout is None and row_spacing(index, iterator, 2, 1) == NEXT:",
        "if layout is None:",
    ),
    Fault(
        "columns of B that lie apart are taken for neighbours",
        "places",
        "if iterator is None or row_spacing(load.index, iterator, 2, 1) == NEXT:",
        "if True:",
    ),
    Fault(
        "a padded tile does not take in what it adds to",
        "row_blocks",
        "if padded and not begins_with_store(target, self.tile.body):",
        "if False:",
    ),
    Fault(
        "a padded tile is not copied out",
        "row_blocks",
        "        if padded:\n            self.copy(target, memory, inwards=False)",
        "        if False:\n            self.copy(target, memory, inwards=False)",
    ),
    Fault(
        "statements after the sum are dropped",
        "row_blocks",
        "        if pending:\n            self.low.vectors(self.tile, pending, memory)\n        if padded",
        "        if padded",
    ),
    Fault(
        "statements before the sum run after it",
        "row_blocks",
        "                if pending:\n"
        "                    self.low.vectors(self.tile, pending, memory)\n"
        "                    pending = []\n"
        "                with self.low.placing(memory):\n"
        "                    self.within(part.around, part)\n",
        "                with self.low.placing(memory):\n"
        "                    self.within(part.around, part)\n",
    ),
    Fault(
        "a block of no rows is called",
        "row_blocks",
        "return limited or self.low.range_of(axis.extent)[0] < 1",
        "return False",
    ),
    Fault(
        "an empty loop of terms counts down",
        "row_blocks",
        "if low.range_of(ix.sub(self.loop.hi, self.loop.lo))[0] < 0:",
        "if False:",
    ),
    Fault(
        "the terms start at zero wherever the loop does",
        "row_blocks",
        "terms = [(loop.iter, low.scalar(loop.lo)) for loop in (*plan.turns, plan.loop)]",
        'terms = [(loop.iter, "0") for loop in (*plan.turns, plan.loop)]',
    ),
    Fault(
        "the rows of A are one element apart",
        "row_blocks",
        "row, depth = (self.step(memory, load.index, axis) for axis in axes)",
        "row, depth = str(self.item), self.step(memory, load.index, axes[1])",
    ),
    Fault(
        "the last vector of columns is one short",
        "row_blocks",
        "last = covered - (width - 1) * lanes",
        "last = max(covered - (width - 1) * lanes - 1, 1)",
    ),
    Fault(
        "the columns move by one vector too few",
        "row_blocks",
        "panel = columns // self.block.panel",
        "panel = max(columns // self.block.panel - 1, 0)",
    ),
    Fault(
        "the row of a height is that of the next",
        "row_blocks",
        "position = ir.sub(self.f, self.rows, str(self.heights[0]))",
        "position = ir.sub(self.f, self.rows, str(min(self.heights[0] + 1, self.heights[-1])))",
    ),
    # Microkernels.
    Fault(
        "rows two and three of a group change places",
        "llvm_blocks",
        'row = ("%a_row", "%a_row2", "%a_row3")[r % 4 - 1]',
        'row = ("%a_row", "%a_row3", "%a_row2")[r % 4 - 1]',
    ),
    Fault(
        "the last column's mask is one wider",
        "llvm_blocks",
        'yield f"  %{name} = icmp ult {v} <{index}>, %{name}_all"',
        'yield f"  %{name} = icmp ule {v} <{index}>, %{name}_all"',
    ),
    Fault(
        "the steps that are left over are not run",
        "llvm_blocks",
        'yield f"  %left = sub i64 {depth}, %many"',
        'yield f"  %left = sub i64 %many, %many"',
    ),
    Fault(
        "a product is subtracted",
        "llvm_blocks",
        'yield f"  {new} = fadd {self.v} {product}, {c}"',
        'yield f"  {new} = fsub {self.v} {c}, {product}"',
    ),
    Fault(
        "a block in assembly takes row two for row one",
        "avx512_blocks",
        'moved = ("", f" + {_A_ROW}", f" + 2*{_A_ROW}", f" + {row3}", f" + 4*{_A_ROW}")[r % _GROUP]',
        'moved = ("", f" + 2*{_A_ROW}", f" + {_A_ROW}", f" + {row3}", f" + 4*{_A_ROW}")[r % _GROUP]',
    ),
    Fault(
        "a block in assembly takes a group of rows from one row before",
        "avx512_blocks",
        'yield f"add {group}, {_A_ROW}"',
        'yield f"add {group}, 0"',
    ),
    Fault(
        "a block in assembly stores the last vector whole",
        "avx512_blocks",
        "{'{k1}' if last else ''}, {register}",
        ", {register}",
    ),
    Fault(
        "a block in assembly drops the steps that are left over",
        "avx512_blocks",
        "yield f\"jz {self.label('done', ahead=True)}\"",
        "yield f\"jmp {self.label('done', ahead=True)}\"",
    ),
    Fault(
        "a block in assembly never adds to what is there",
        "avx512_blocks",
        "yield f\"jne {self.label('resume', ahead=True)}\"",
        'yield f"nop {_LOW}"',
    ),
    Fault(
        "a block in assembly goes on with the inner loop where the outer one moves",
        "avx512_blocks",
        "for inner in range(n, turns):",
        "for inner in range(n, n + 1):",
    ),
    Fault(
        "a block in assembly drops an odd term of bfloat16",
        "avx512_blocks",
        "yield f\"jz {self.label('finish', ahead=True)}\"",
        "yield f\"jmp {self.label('finish', ahead=True)}\"",
    ),
    Fault(
        "bytes of A are taken for those of B",
        "vnni",
        "yield self.dot(new, b, a, c) if self.signed else self.dot(new, a, b, c)",
        "yield self.dot(new, b, a, c)",
    ),
    Fault(
        "the last terms of bytes are left out",
        "dots",
        'yield "  %any_odd = icmp ne i64 %odd, 0"',
        'yield "  %any_odd = icmp ugt i64 %odd, 1"',
    ),
    Fault(
        "the lower half of a tile register adds to the upper one's rows",
        "amx_code",
        'yield f"  %{name}_lower = mul i64 %upper, %a_now_row"',
        'yield f"  %{name}_lower = mul i64 0, %a_now_row"',
    ),
    # Vectors.
    Fault(
        "what is left of a row is not run",
        "vectors",
        "if width == 1 or (literal_count is not None and literal_count % width == 0):",
        "if width == 1 or literal_count is not None:",
    ),
    Fault(
        "the mask of a row's rest is one lane short",
        "vectors",
        'limit = e.splat(hidden, "index")',
        'limit = e.splat(ir.sub(self.f, hidden, "1"), "index")',
    ),
    Fault(
        "a tile's limit is not asked",
        "vectors",
        "            extent = ir.minimum(self.f, extent, room)",
        "            extent = ir.maximum(self.f, extent, extent)",
    ),
    Fault(
        "conditions of a tile are dropped",
        "vectors",
        "            body = (If(condition, tuple(body)),)",
        "            body = tuple(body)",
    ),
    Fault(
        "a transposed square's last rows are written where they are not",
        "vectors",
        'deep = f.let(f"icmp sge i64 {rows}, {width}")',
        'deep = f.let(f"icmp sge i64 {rows}, 1")',
    ),
    Fault(
        "a register is not loaded before it is added to",
        "statements",
        "if buffer in self.memory and not begins_with_store(buffer, body):",
        "if False:",
    ),
    Fault(
        "a register stands for several elements",
        "accesses",
        "and len(found_indices) <= 1",
        "and len(found_indices) <= 2",
    ),
    Fault(
        "the other branch runs in the lanes of the first",
        "statements",
        "self.vector_block(other, self.on(lanes, fails), slots)",
        "self.vector_block(other, self.on(lanes, holds), slots)",
    ),
    Fault(
        "lanes whose loop has ended go on",
        "statements",
        'for op, bound in (("<=", loop.lo), (">", loop.hi)):',
        'for op, bound in (("<=", loop.lo),):',
    ),
    Fault(
        "lanes whose loop has not begun run already",
        "statements",
        'for op, bound in (("<=", loop.lo), (">", loop.hi)):',
        'for op, bound in ((">", loop.hi),):',
    ),
    Fault(
        "a lane that is off changes its register",
        "statements",
        "            result = e.select(lanes.path, result, old, dtype)",
        "            pass",
    ),
    Fault(
        "elements that lie apart are taken for neighbours",
        "addressing",
        "row = row_spacing(index, lanes.axis, lanes.width, lanes.multiple)",
        "row = row_spacing(index, lanes.axis, lanes.width, lanes.multiple) or NEXT",
    ),
    Fault(
        "every second element is taken for the next",
        "addressing",
        "case Spacing(1, 1):",
        "case Spacing(1, 1 | 2):",
    ),
    Fault(
        "lanes are taken to lie in one block wherever it begins",
        "affine",
        "whole = gcd(int(by), known_divisor(rest), multiple) % width == 0",
        "whole = int(by) % width == 0",
    ),
    Fault(
        "elements that lie a few apart are taken from the first vector alone",
        "addressing",
        "else min(width + lane * step - part * width, 2 * width - 1)",
        "else width + lane % width",
    ),
    Fault(
        "a lane that is off hides another than its own element",
        "addressing",
        'spread = self.shuffle("i1", mask, width, (at // step for at in places))',
        'spread = self.shuffle("i1", mask, width, (at % width for at in places))',
    ),
    Fault(
        "lanes that lie back to back are taken as they lie",
        "addressing",
        'return self.f.let(f"shufflevector {kind} {vector}, {kind} poison, {turned}")',
        "return vector",
    ),
    Fault(
        "the lanes that are off are those of the other end",
        "addressing",
        'return last, mask and self.reverse(f"<{lanes.width} x i1>", mask, lanes)',
        "return last, mask",
    ),
    Fault(
        "masked lanes are written",
        "addressing",
        "            return lanes.mask or lanes.path",
        "            return lanes.path",
    ),
    Fault(
        "lanes that are off read one element",
        "addressing",
        "                if lanes.path is None:\n                    element = self.f.let(",
        "                if True:\n                    element = self.f.let(",
    ),
    Fault(
        "a remainder of a negative number is negative",
        "elements",
        "            return self.select(below, again, rest, dtype)",
        "            return rest",
    ),
    Fault(
        "a quotient is rounded toward zero",
        "elements",
        '        return self.f.let(f"sub {kind} {quotient}, {one}")',
        "        return quotient",
    ),
    Fault(
        "bytes without a sign are extended with one",
        "elements",
        'word = "trunc" if wide_bits < narrow else "zext" if old in _FROM_ZERO else "sext"',
        'word = "trunc" if wide_bits < narrow else "sext"',
    ),
    Fault(
        "a maximum of floats forgets NaN",
        "elements",
        'name = f"llvm.{FUNCTIONS[op].intrinsic}.v{self.lanes}',
        "name = f\"llvm.{FUNCTIONS[op].intrinsic.replace('imum', 'num')}.v{self.lanes}",
    ),
    Fault(
        "unequal is false of NaN",
        "elements",
        '"==": "oeq", "!=": "une"}',
        '"==": "oeq", "!=": "one"}',
    ),
    Fault(
        "a 16-bit float is not rounded after an operation",
        "elements",
        "            return self.round_result(result, dtype)",
        "            return result",
    ),
    Fault(
        "the branches of a value change places",
        "expressions",
        "return e.select(holds, sides[0], sides[1], dtype_of(then))",
        "return e.select(holds, sides[1], sides[0], dtype_of(then))",
    ),
    Fault(
        "a difference is turned around",
        "expressions",
        "                return e.binary(op, dtype, x, y)",
        "                return e.binary(op, dtype, y, x)",
    ),
    Fault(
        "a condition that differs between lanes is asked of the first",
        "expressions",
        "        return lanes.axis in variables(expr) or any(",
        "        return any(",
    ),
    # Reductions as lanes, packing, programs.
    Fault(
        "a sum in lanes forgets what was there",
        "statements",
        "                new = self.combine(store, old, totals[store.buffer])\n"
        "                self.save(store.buffer, store.index, new, lanes)",
        "                new = totals[store.buffer]\n"
        "                self.save(store.buffer, store.index, new, lanes)",
    ),
    Fault(
        "lanes without a term are added",
        "reductions",
        "return (new if lanes.mask is None else e.select(lanes.mask, new, old[0], self.dtype),)",
        "return (new,)",
    ),
    Fault(
        "accumulators of a reduction are left out",
        "reductions",
        "[reducer.merge(a, b) for reducer, a, b in zip(self.reducers, *pair, strict=True)]",
        "[a for reducer, a, b in zip(self.reducers, *pair, strict=True)]",
    ),
    Fault(
        "a maximum in lanes forgets NaN",
        "reductions",
        'return f.let(f"select i1 {met}, {e.kind(self.dtype)} {nan}, {e.kind(self.dtype)} {total}")',
        "return total",
    ),
    Fault(
        "rows past the depth of a packed operand hold what lies there",
        "interleave",
        'inside = f.let(f"icmp slt i64 {row}, {last}")',
        'inside = f.let(f"icmp sle i64 {row}, {last}")',
    ),
    Fault(
        "a loop runs to its bound, and one further",
        "ir",
        'more = self.let(f"icmp slt i64 {now}, {hi}")',
        'more = self.let(f"icmp sle i64 {now}, {hi}")',
    ),
    Fault(
        "the first of two equal options is not the one that runs, nor any other",
        "lower",
        '            self.block(option.body)\n            self.f.do(f"br label {end}")',
        '            self.f.do(f"br label {end}")',
    ),
    Fault(
        "what a program updates is not taken in",
        "layout",
        "            rows(0, source.base, target.base)",
        "            pass",
    ),
    Fault(
        "a window of a buffer starts at its first element",
        "layout",
        "self.placing({window.name: replace(memory, origins=origins)})",
        "self.placing({window.name: memory})",
    ),
    Fault(
        "a condition's other branch is not run",
        "lower",
        "        with self.f.within(no), self.assumed(condition, False):\n            self.block(other)",
        "        with self.f.within(no), self.assumed(condition, False):\n            pass",
    ),
    Fault(
        "iterations that need each other run side by side",
        "independence",
        "        return not open_arrays or self.by_sets(open_arrays, path)",
        "        return True",
    ),
    Fault(
        "threads do not wait for what others write",
        "threaded",
        "            elif self.steps:\n                self.meet()",
        "            else:\n                pass",
    ),
    Fault(
        "the last thread's iterations are one short",
        "threaded",
        "ends = ir.add(f, lo, first), ir.add(f, lo, end)",
        'ends = ir.add(f, lo, first), ir.sub(f, ir.add(f, lo, end), "1")',
    ),
    Fault(
        "an access that is not proved is not asked",
        "bounds_guards",
        "        if unproved:",
        "        if False:",
    ),
    # Of several parts.
    Fault(
        "a padded tile reads one row too many",
        "row_blocks",
        'with f.loop("0", rows) as row:',
        'with f.loop("0", ir.add(f, rows, "1")) as row:',
    ),
    Fault(
        "the last vector of columns is whole",
        "row_blocks",
        "count = ir.minimum(f, room, ir.sub(f, end, now))",
        "count = room",
    ),
    Fault(
        "rows and columns of a scratch change places",
        "row_blocks",
        "order += [n for n in (match.rows, match.columns) if n is not None]",
        "order += [n for n in (match.columns, match.rows) if n is not None]",
    ),
    Fault(
        "B moves along its columns with the depth",
        "row_blocks",
        "b_step = block.step(memory, block.b.index, block.found.depth)",
        "b_step = block.step(memory, block.b.index, block.found.columns)",
    ),
    Fault(
        "any known depth is taken for even",
        "row_blocks",
        "even = known_depth is not None and known_depth % self.low.isa.machine.tiles.unroll == 0",
        "even = known_depth is not None",
    ),
    Fault(
        "the rows of a group of four start too early",
        "llvm_blocks",
        'yield f"  %offset{g} = mul i64 %a_row, {g}"',
        'yield f"  %offset{g} = mul i64 %a_row, {g // 2}"',
    ),
    Fault(
        "a panel is read at the pace of bytes",
        "llvm_blocks",
        "b_step = str(unroll * self.b_bytes) if",
        "b_step = str(unroll * self.lanes) if",
    ),
    Fault(
        "steps that there are not are run",
        "llvm_blocks",
        'yield "  %any_many = icmp sgt i64 %many, 0"',
        'yield "  %any_many = icmp sge i64 %many, 0"',
    ),
    Fault(
        "the second panel is the first",
        "llvm_blocks",
        'yield f"  {distance} = mul i64 %b_panel, {p}"',
        'yield f"  {distance} = mul i64 %b_panel, {p - 1}"',
    ),
    Fault(
        "the last vector of B is read past its columns",
        "llvm_blocks",
        "                if p == self.vectors - 1:\n                    yield self.masked_load(value, address)",
        "                if False:\n                    yield self.masked_load(value, address)",
    ),
    Fault(
        "a row of signed bytes is summed up in part",
        "vnni",
        'yield "  %sums_more = icmp ult i64 %sums_next, %depth"',
        'yield "  %sums_more = icmp ult i64 %depth, %sums_next"',
    ),
    Fault(
        "what signed bytes start from is added",
        "vnni",
        'yield f"  %start{r}_{p} = sub {self.v} %held{r}_{p}, {splat}"',
        'yield f"  %start{r}_{p} = add {self.v} %held{r}_{p}, {splat}"',
    ),
    Fault(
        "the last terms of bytes are those before",
        "dots",
        'yield f"  %part_k = mul i64 %steps, {self.item}"',
        'yield f"  %part_k = mul i64 %steps, {self.item - 1}"',
    ),
    Fault(
        "one column past the panels is forgotten",
        "amx_code",
        'yield "  %any_edge = icmp ne i64 %edge_columns, 0"',
        'yield "  %any_edge = icmp ugt i64 %edge_columns, 1"',
    ),
    Fault(
        "the lower half ends as the upper one",
        "amx_code",
        'yield f"  %{name}_end_offset = mul i64 %upper, {STEP_BYTES}"',
        'yield f"  %{name}_end_offset = mul i64 %upper, 0"',
    ),
    Fault(
        "the ends of rows are not filled up",
        "amx_code",
        '*first_lanes("ends_mask", "%end_bytes", STEP_BYTES, "i8"),',
        '*first_lanes("ends_mask", "%bytes", STEP_BYTES, "i8"),',
    ),
    Fault(
        "the terms left over are those of the upper half",
        "widened_operand",
        'yield f"  {shift} = select i1 {odd}, i32 {uneven}, i32 {even}"',
        'yield f"  {shift} = select i1 {odd}, i32 {uneven}, i32 {uneven}"',
    ),
    Fault(
        "columns past the last are read",
        "vectors",
        "column = str(lane) if last is None else ir.minimum(f, str(lane), last)",
        "column = str(lane)",
    ),
    Fault(
        "a second condition is not asked",
        "statements",
        "self.vector_if(first, (inner,), (), lanes, slots)",
        "self.vector_if(first, then, (), lanes, slots)",
    ),
    Fault(
        "a store that reads what it writes begins",
        "private",
        "return buffer not in read_arrays((stmt.value,))",
        "return True",
    ),
    Fault(
        "the larger byte is that with a sign",
        "elements",
        "name = f\"llvm.{'u' if unsigned else 's'}{op}",
        "name = f\"llvm.{'s'}{op}",
    ),
    Fault(
        "a byte becomes a float with its sign",
        "elements",
        'word = "uitofp" if old in _FROM_ZERO else "sitofp"',
        'word = "sitofp"',
    ),
    Fault(
        "a tie is rounded up",
        "elements",
        "biased = self.f.let(f\"add {i32} {self._op('add', bits, 0x7FFF)}, {odd}\")",
        "biased = self._op('add', bits, 0x8000)",
    ),
    Fault(
        "a small half is rounded as a large one",
        "elements",
        "splat (i32 {113 << 23})",
        "splat (i32 {100 << 23})",
    ),
    Fault(
        "a large half is no infinity",
        "elements",
        "splat (i32 {0x477FF000})",
        "splat (i32 {0x7F800000})",
    ),
    Fault(
        "a float64 is rounded twice",
        "elements",
        "return self.round_result(self._to_odd(a), new)",
        "pass",
    ),
    Fault(
        "the second of two alternatives is read where the first holds",
        "expressions",
        'total if op == "and" else self.f.let(f"xor {kind} {total}, splat (i1 true)"),',
        "total,",
    ),
    Fault(
        "a term that is left out is added",
        "expressions",
        "                return e.select(holds, new, old, dtype)",
        "                return new",
    ),
    Fault(
        "lanes have the index of the first",
        "expressions",
        'return base if lanes.width == 1 else e.binary("+", "index", base, e.ramp())',
        "return base",
    ),
    Fault(
        "the rest of a reduction does not become less",
        "reductions",
        "after = ir.add(f, done, str(self.width)), ir.sub(f, rest, str(self.width))",
        "after = ir.add(f, done, str(self.width)), rest",
    ),
    Fault(
        "a term past the last is added",
        "reductions",
        'return f.let(f"icmp slt {kind} {ramp}, {limit}")',
        'return f.let(f"icmp sle {kind} {ramp}, {limit}")',
    ),
    Fault(
        "every reduction starts as a sum",
        "reductions",
        'nothing = identity(self.store.reduce or "", self.dtype)',
        'nothing = identity("sum", self.dtype)',
    ),
    Fault(
        "a negative index has a negative remainder",
        "ir",
        '    return f.let(f"select i1 {below}, i64 {again}, i64 {rest}")',
        "    return rest",
    ),
    Fault(
        "parts of the workspace overlap",
        "layout",
        'up = ir.add(self.f, ir.maximum(self.f, self.scalar(size), "0"), "63")',
        "up = self.scalar(size)",
    ),
    Fault(
        "less scratch is asked for than panels need",
        "layout",
        "return ix.add(total, PANEL_SLACK)",
        "return ix.add(total, -PANEL_SLACK)",
    ),
    Fault(
        "iterations that share an end are independent",
        "footprints",
        "self._at_least(after - last, 1) for _, after in starts for _, last in known",
        "self._at_least(after - last, 0) for _, after in starts for _, last in known",
    ),
    Fault(
        "the rest of a shared loop is not run",
        "threaded",
        'with f.loop("0", ir.add(f, each, f.let(f"zext i1 {some} to i64"))) as now:',
        'with f.loop("0", each) as now:',
    ),
    Fault(
        "every thread runs what one should",
        "threaded",
        'with self.f.when(self.f.let(f"icmp eq i64 {others}, 1")):',
        'with self.f.when(self.f.let(f"icmp sge i64 {others}, 1")):',
    ),
    Fault(
        "an index may be the extent",
        "bounds_guards",
        'Compare("<", part, extent)]',
        'Compare("<=", part, extent)]',
    ),
    Fault(
        "an index may be negative",
        "bounds_guards",
        'comparisons += [Compare("<=", ix.const(0), part), Compare',
        "comparisons += [Compare",
    ),
    Fault(
        "the least of a size is not asked",
        "entry",
        'text.check("sge", "i64", value, facts.min)',
        'text.check("sge", "i64", value, 0)',
    ),
    Fault(
        "multiples of a size are not asked",
        "entry",
        "        if facts.multiple_of != 1:",
        "        if False:",
    ),
    Fault(
        "extents that disagree are taken",
        "entry",
        "            if (number, axis) not in solved:",
        "            if False:",
    ),
    Fault(
        "assumptions are not asked",
        "entry",
        "for relation in signature.relations:",
        "for relation in ():",
    ),
    Fault(
        "results that overlap inputs are taken",
        "entry",
        'legal = text.f.let(f"or i1 {before}, {after}")',
        'legal = "true"',
    ),
    Fault(
        "a result of another shape is taken",
        "entry",
        'text.check("eq", "i64", text.word("%shapes", first[number] + axis), extent_)',
        "pass",
    ),
    Fault(
        "new results lie in columns",
        "allocation",
        "%wider = mul i64 %step, %extent",
        "%wider = add i64 %step, 0",
    ),
    Fault(
        "extents that disagree are taken on the slow way",
        "binding",
        "            if actual == expected:",
        "            if True:",
    ),
    Fault(
        "the least of a size is not asked on the slow way",
        "binding",
        "        if value < facts.min:",
        "        if False:",
    ),
    Fault(
        "a copied result is not copied back",
        "call",
        "                if out is not target:",
        "                if False:",
    ),
    Fault(
        "read-only results are written",
        "binding",
        "    if not view.writeable:",
        "    if False:",
    ),
    # Of all parts, what tiles written by hand, odd values and orders show.
    Fault(
        "every column is taken for the first of a panel",
        "row_blocks",
        "return is_multiple(self.column_axis.start, self.panel)",
        "return True",
    ),
    Fault(
        "a depth that ends inside a group of terms is taken for a packed one",
        "places",
        "if is_multiple(end, multiple):",
        "if True:",
    ),
    Fault(
        "terms that begin inside a group are taken for those of its start",
        "places",
        "whole = is_multiple(first, kernel.multiple)",
        "whole = True",
    ),
    Fault(
        "every number is taken for a multiple",
        "places",
        "return form.const % of == 0 and all(divides(*term) for term in form.terms)",
        "return True",
    ),
    Fault(
        "a vector goes from one packed panel to the next",
        "addressing",
        "whole = gcd(shape.width, lanes.multiple) % lanes.width == 0",
        "whole = True",
    ),
    Fault(
        "columns of a microkernel go from one packed panel to the next",
        "row_blocks",
        "room = lanes if aligned else ir.sub(f, lanes, ir.mod(f, now, lanes))",
        "room = lanes",
    ),
    Fault(
        "the columns of a tile are as many as there may be",
        "row_blocks",
        "literal = ir.literal(columns)",
        "literal = low.range_of(self.column_axis.extent)[1] if self.column_axis else 1",
    ),
    Fault(
        "what may be a multiple of a vector has no rest",
        "vectors",
        "if width == 1 or (literal_count is not None and literal_count % width == 0):",
        "if width == 1 or (most is not None and most % width == 0):",
    ),
    Fault(
        "a tile register keeps what it held",
        "amx_code",
        '    for tile in tiles:\n        yield f"  call void @llvm.x86.tilezero',
        '    for tile in tiles[:1]:\n        yield f"  call void @llvm.x86.tilezero',
    ),
    Fault(
        "lanes that write one element write neighbours",
        "addressing",
        "if lying not in (NEXT, BACK) and lanes.width > 1:",
        "if lying not in (SAME, NEXT, BACK) and lanes.width > 1:",
    ),
    Fault(
        "elements of a window that lie apart are those of its buffer",
        "addressing",
        'if memory.origins[axis] != "0":',
        "if False:",
    ),
    Fault(
        "the other value of a term is nothing",
        "expressions",
        "case Select(inside, then, Const(value)) if is_identity(op, value, dtype):",
        "case Select(inside, then, Const(value)):",
    ),
    Fault(
        "NaN in the rest of a row is not met",
        "reductions",
        "return self.pair(self.width, term, old[0]), met",
        "return self.pair(self.width, term, old[0]), met if lanes.mask is None else old[1]",
    ),
    Fault(
        "NaN before the rest of a row is forgotten",
        "reductions",
        "return self.pair(self.width, term, old[0]), met",
        "return self.pair(self.width, term, old[0]), met if lanes.mask is None else none",
    ),
    Fault(
        "an index is divided toward zero",
        "ir",
        '    return f.let(f"sub i64 {quotient}, {one}")',
        "    return quotient",
    ),
    Fault(
        "no index that is divided is negative",
        "scalars",
        "natural = self.range_of(a)[0] >= 0",
        "natural = True",
    ),
    Fault(
        "a difference is least where both are",
        "intervals",
        "            return a[0] - b[1], a[1] - b[0]",
        "            return a[0] - b[0], a[1] - b[1]",
    ),
    Fault(
        "bytes are compared with a sign",
        "elements",
        'sign = "u" if dtype in _FROM_ZERO else "s"\n        words',
        'sign = "s"\n        words',
    ),
    Fault(
        "bytes are divided with a sign",
        "elements",
        "        if unsigned:\n            return",
        "        if False:\n            return",
    ),
    Fault(
        "any scalar is one of an iteration",
        "independence",
        "return scalar and is_written_before_read(name, loop.body)",
        "return scalar",
    ),
    Fault(
        "threads do not meet between iterations",
        "boundaries",
        "        if _may_repeat(stmt):",
        "        if False:",
    ),
    Fault(
        "panels are read as rows are",
        "places",
        'if place.layout is None:\n            return f"',
        'if place.layout is None:\n            return "" and f"',
    ),
)
