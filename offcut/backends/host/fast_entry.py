"""A signature -> LLVM IR of the fast way from Python into a compiled kernel, beside the kernel's own.

`fast_entry_ir` writes a function with CPython's METH_FASTCALL | METH_KEYWORDS signature: it reads
the arrays, solves the sizes from their shapes, checks every fact of the signature, finds or
allocates the results, and calls the kernel. It accepts exactly the good, plain calls. Whatever it
does not like, it hands with the same arguments to a Python callable, the slow path, which is
complete by itself and the only author of error messages: so a check here needs to be safe, never
exact, and the two cannot disagree about a message.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from offcut.backends.abi import Argument, Signature
from offcut.backends.host import scratch
from offcut.backends.host.array_access_ir import READ_ARRAY, dlpack_code
from offcut.backends.host.array_allocation_ir import ALLOCATE_ARRAY
from offcut.backends.host.builtin_function import (
    ALIGNED,
    BYTES_OF,
    FIELDS,
    KEYWORD_FIELDS,
    TYPE_OF,
    WRITEABLE,
)
from offcut.core import index as ix
from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Binary, Expr, Var
from offcut.core.extents import factor_of, is_checked
from offcut.core.extents import solving_order as order_of_sizes

RELEASE_ABOVE = 200_000
"""Work (flop, or elements read and written) above which other Python threads run meanwhile."""


def solving_order(
    signature: Signature, given: Collection[str] = ()
) -> tuple[tuple[str, int, int], ...]:
    """Which input's extent gives which size: (size, input, axis), in an order that can be followed.

    An extent gives a size when it is affine in that one unknown, the others being `given` or
    solved before. Sizes that do not occur in the result are determined by no shape.
    """
    places = [(n, axis) for n, one in enumerate(signature.inputs) for axis in range(len(one.shape))]
    shapes = [signature.inputs[number].shape[axis] for number, axis in places]
    return tuple((name, *places[number]) for name, number in order_of_sizes(shapes, given))


def free_sizes(signature: Signature) -> tuple[str, ...]:
    """Return the sizes that no shape determines, which a call gives by keyword."""
    determined = {name for name, _, _ in solving_order(signature)}
    return tuple(size.name for size in signature.sizes if size.name not in determined)


DECLARED = """\
declare i32 @offcut_entry(ptr, ptr, ptr, ptr)
declare i64 @offcut_workspace(ptr)
declare i64 @offcut_work(ptr)
"""
"""What `fast_entry_ir` calls, for a module that is linked with theirs."""


def fast_entry_ir(
    signature: Signature, *, constants: int = 0, work: bool = False, dense: bool = False
) -> str:
    """IR text defining ``ptr @offcut_fastcall(ptr %self, ptr %args, i64 %nargs, ptr %kwnames)``.

    It belongs into a module that defines `offcut_entry` and `offcut_workspace`, or declares them (`DECLARED`).

    constants   number of packed constants that the kernel takes after inputs and outputs
    work        whether the module also defines ``i64 @offcut_work(ptr %sizes)``, the flop of a
                call; otherwise the number of elements read and written stands in for it
    dense       whether the kernel takes arrays alone whose elements lie side by side, row by row

    Sizes that no shape determines are given by keyword, in any order, as ints. Signatures with products of sizes go the slow way always.
    """
    free = free_sizes(signature)
    order = solving_order(signature, free)
    text = _Text()
    extents = (extent for one in (*signature.inputs, *signature.outputs) for extent in one.shape)
    fast = len(order) + len(free) == len(signature.sizes) and all(map(is_checked, extents))
    if fast:
        _fast_body(text, signature, order, constants, work, dense)
    slow, call = text.load("slow"), text.load("PyObject_Vectorcall")
    result = text.let(f"call ptr {call}(ptr {slow}, ptr %args, i64 %nargs, ptr %kwnames)")
    text.do(f"ret ptr {result}")
    return (READ_ARRAY + ALLOCATE_ARRAY if fast else "") + (
        "\ndefine ptr @offcut_fastcall(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) "
        "noinline optnone {\nentry:\n"
        f"  %table = getelementptr i8, ptr %self, i64 {BYTES_OF}\n{text}}}\n"
    )


class _Text:
    """Instructions of one function, with fresh names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0
        self.block = "entry"
        self.otherwise = "slow"

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"

    def do(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def let(self, value: str) -> str:
        self.count += 1
        self.do(f"%v{self.count} = {value}")
        return f"%v{self.count}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def require(self, kind: str, type_: str, one: str, other: str | int) -> None:
        """Go on where the comparison holds, else to the block `otherwise`."""
        holds = self.let(f"icmp {kind} {type_} {one}, {other}")
        self.require_true(holds)

    def require_true(self, holds: str) -> None:
        self.count += 1
        self.do(f"br i1 {holds}, label %on{self.count}, label %{self.otherwise}")
        self.label(f"on{self.count}")

    def word(self, index: int, type_: str = "ptr", base: str = "%table") -> str:
        """Return the 8-byte word `index` of the table, or of another base."""
        at = self.let(f"getelementptr i64, ptr {base}, i64 {index}")
        return self.let(f"load {type_}, ptr {at}")

    def load(self, field: str) -> str:
        return self.word(FIELDS.index(field))

    def at(self, base: str, index: int) -> str:
        return self.let(f"getelementptr i64, ptr {base}, i64 {index}")

    def affine(self, const: int, terms: tuple[tuple[str, int], ...], sizes: dict[str, str]) -> str:
        """``const + sum(coef * size)``."""
        return self.weighted(const, [(sizes[name], coef) for name, coef in terms])

    def weighted(self, const: int, terms: Sequence[tuple[str, int]]) -> str:
        """``const + sum(coef * value)``."""
        total = str(const)
        for value, coef in terms:
            scaled = value if coef == 1 else self.let(f"mul i64 {value}, {coef}")
            total = scaled if total == "0" else self.let(f"add i64 {total}, {scaled}")
        return total

    def extent(self, extent: Expr, sizes: dict[str, str], without: str = "") -> str:
        """Return an extent; `without` the term of a size."""
        form = ix.to_linear(extent)
        terms = [
            (sizes[atom.name], coef)
            for atom, coef in form.terms
            if isinstance(atom, Var) and atom.name != without
        ]
        terms += [
            (self.quotient(atom, sizes), coef)
            for atom, coef in form.terms
            if isinstance(atom, Binary)
        ]
        return self.weighted(form.const, terms)

    def quotient(self, quotient: Binary, sizes: dict[str, str]) -> str:
        total, divisor = self.extent(quotient.a, sizes), ix.literal_value(quotient.b)
        whole, rest = (self.let(f"{op} i64 {total}, {divisor}") for op in ("sdiv", "srem"))
        below = self.let(f"icmp slt i64 {rest}, 0")
        return self.let(f"add i64 {whole}, {self.let(f'sext i1 {below} to i64')}")


def _fast_body(
    text: _Text,
    signature: Signature,
    order: tuple[tuple[str, int, int], ...],
    constants: int,
    work: bool,
    dense: bool,
) -> None:
    """Everything from the first check to the return; falls off the end into the slow path."""
    inputs, outputs = signature.inputs, signature.outputs
    arguments = (*inputs, *outputs)
    first = [sum(len(a.shape) for a in arguments[:n]) for n in range(len(arguments) + 1)]
    for name, words in (
        ("pointers", len(arguments) + constants),
        ("sizes", len(signature.sizes)),
        ("shapes", first[-1]),
        ("strides", first[-1]),
        ("results", len(outputs)),
    ):
        text.do(f"%{name} = alloca [{max(words, 1)} x i64]")
    text.require("eq", "i64", "%nargs", len(inputs))
    free = free_sizes(signature)
    given = _keywords(text, len(inputs), free, len(FIELDS) + len(arguments) + constants)

    rows = []
    for number, argument in enumerate(inputs):
        array = text.word(number, base="%args")
        rows.append(_read(text, argument, number, array, first[number], ALIGNED))
    sizes = dict(zip(free, given, strict=True))
    solved = set()
    for name, number, axis in order:
        extent = inputs[number].shape[axis]
        found = text.word(first[number] + axis, "i64", "%shapes")
        coef = factor_of(extent, name)
        rest = text.extent(extent, sizes, without=name)
        value = found if rest == "0" else text.let(f"sub i64 {found}, {rest}")
        if coef != 1:
            over = text.let(f"srem i64 {value}, {coef}")
            text.require("eq", "i64", over, 0)
            value = text.let(f"sdiv i64 {value}, {coef}")
        sizes[name] = value
        solved.add((number, axis))
    for position, facts in enumerate(signature.sizes):
        value = sizes[facts.name]
        text.require("sge", "i64", value, facts.min)
        text.require("sle", "i64", value, facts.max)
        if facts.multiple_of != 1:
            text.require("eq", "i64", text.let(f"srem i64 {value}, {facts.multiple_of}"), 0)
        text.do(f"store i64 {value}, ptr {text.at('%sizes', position)}")
    for number, argument in enumerate(inputs):
        for axis, extent in enumerate(argument.shape):
            if (number, axis) not in solved:
                found = text.word(first[number] + axis, "i64", "%shapes")
                text.require("eq", "i64", found, text.extent(extent, sizes))
        if dense:
            _require_dense(text, len(argument.shape), first[number])
    for relation in signature.relations:
        value = text.affine(relation.const, relation.terms, sizes)
        if relation.kind == "mod":
            value = text.let(f"srem i64 {value}, {relation.modulus}")
        text.require("sge" if relation.kind == ">=" else "eq", "i64", value, 0)
    shapes = [[text.extent(extent, sizes) for extent in output.shape] for output in outputs]
    numbered = list(enumerate(zip(outputs, shapes, strict=True), len(inputs)))
    text.do("%fresh = icmp eq ptr %out, null")
    text.do("br i1 %fresh, label %allocate, label %given")

    text.label("given")
    for (number, (output, extents)), array in zip(
        numbered, _given(text, len(outputs)), strict=True
    ):
        _read(text, output, number, array, first[number], ALIGNED | WRITEABLE)
        for axis, extent_ in enumerate(extents):
            text.require("eq", "i64", text.word(first[number] + axis, "i64", "%shapes"), extent_)
        if dense:
            _require_dense(text, len(extents), first[number])
    _require_disjoint(text, signature, first)
    text.do("br label %run")

    text.label("allocate")
    for position in range(len(outputs)):
        text.do(f"store ptr null, ptr {text.at('%results', position)}")
    text.otherwise = "undo"
    like = rows[0] if rows else "%table"
    for position, (number, (output, extents)) in enumerate(numbered):
        result = text.at("%results", position)
        _allocate(text, output, number, extents, first[number], like, result)
    text.do("br label %run")
    text.label("run")
    _run(text, signature, constants, work)
    if free:
        text.label("forget")
        text.do(f"call void {text.load('PyErr_Clear')}()")
        text.do("br label %slow")
    text.label("clear")
    text.do(f"call void {text.load('PyErr_Clear')}()")
    text.do("br label %undo")
    text.label("undo")
    text.do("br i1 %fresh, label %drop, label %slow")
    text.label("drop")
    for position in range(len(outputs)):
        result = text.word(position, base="%results")
        text.do(f"call void {text.load('Py_DecRef')}(ptr {result})")
    text.do("br label %slow")
    text.label("slow")


def _keywords(text: _Text, count: int, free: Sequence[str], words: int) -> list[str]:
    """Set ``%out`` to what is given for ``out=``, null without; return the values of the sizes that are given by keyword.

    count  of positional arguments
    words  the word of the table from which on `KEYWORD_FIELDS` stand, then the names of these sizes, interned: what a caller
           writes is that object
    """
    kind, as_integer = range(words, words + len(KEYWORD_FIELDS))
    names = words + len(KEYWORD_FIELDS)
    text.do("%outs = alloca ptr")
    text.do("store ptr null, ptr %outs")
    if not free:
        unnamed = text.let("icmp eq ptr %kwnames, null")
        text.do(f"br i1 {unnamed}, label %begin, label %keyword")
        text.label("keyword")
    else:
        text.require("ne", "ptr", "%kwnames", "null")
        text.do(f"%values = alloca [{len(free)} x ptr]")
        for position in range(len(free)):
            text.do(f"store ptr null, ptr {text.at('%values', position)}")
    size = text.let(f"call i64 {text.load('PyTuple_Size')}(ptr %kwnames)")
    text.require("sle", "i64", size, len(free) + 1)
    for slot in range(len(free) + 1):
        is_given = text.let(f"icmp slt i64 {slot}, {size}")
        text.do(f"br i1 {is_given}, label %slot{slot}, label %named")
        text.label(f"slot{slot}")
        name = text.let(f"call ptr {text.load('PyTuple_GetItem')}(ptr %kwnames, i64 {slot})")
        value = text.word(count + slot, base="%args")
        for position in range(len(free)):
            same = text.let(f"icmp eq ptr {name}, {text.word(names + position)}")
            text.do(f"br i1 {same}, label %size{slot}.{position}, label %other{slot}.{position}")
            text.label(f"size{slot}.{position}")
            text.do(f"store ptr {value}, ptr {text.at('%values', position)}")
            text.do(f"br label %next{slot}")
            text.label(f"other{slot}.{position}")
        text.require("eq", "ptr", name, text.load("out_name"))
        text.do(f"store ptr {value}, ptr %outs")
        text.do(f"br label %next{slot}")
        text.label(f"next{slot}")
    text.do("br label %named")
    text.label("named")
    values = []
    for position in range(len(free)):
        value = text.word(position, base="%values")
        text.require("ne", "ptr", value, "null")
        text.require("eq", "ptr", text.word(TYPE_OF // 8, base=value), text.word(kind))
        values.append(text.let(f"call i64 {text.word(as_integer)}(ptr {value})"))
        text.otherwise = "forget"
        text.require(
            "ne", "i64", values[-1], -1
        )  # also what an int beyond 64 bits gives, with an error
        text.otherwise = "slow"
    text.do("br label %begin")
    text.label("begin")
    text.do("%out = load ptr, ptr %outs")
    return values


def _given(text: _Text, count: int) -> list[str]:
    """Return the arrays of ``out=``: the object itself, or the items of a plain tuple where there are several."""
    if count == 1:
        return ["%out"]
    type_ = text.word(TYPE_OF // 8, base="%out")
    text.require("eq", "ptr", type_, text.load("tuple"))
    size = text.let(f"call i64 {text.load('PyTuple_Size')}(ptr %out)")
    text.require("eq", "i64", size, count)
    item = text.load("PyTuple_GetItem")
    return [text.let(f"call ptr {item}(ptr %out, i64 {position})") for position in range(count)]


def _read(text: _Text, argument: Argument, number: int, array: str, first: int, flags: int) -> str:
    """Read an argument into shapes, strides and pointers; the row of its type, the table if numpy."""
    shift = numpy_dtype(argument.dtype).itemsize.bit_length() - 1
    row = text.let(
        f"call ptr @offcut_array(ptr %table, ptr {array}, ptr {text.word(len(FIELDS) + number)}, "
        f"i32 {len(argument.shape)}, i64 {shift}, i32 {dlpack_code(argument.dtype)}, i32 {flags}, "
        f"ptr {text.at('%shapes', first)}, ptr {text.at('%strides', first)}, "
        f"ptr {text.at('%pointers', number)})"
    )
    text.require("ne", "ptr", row, "null")
    return row


def _require_dense(text: _Text, rank: int, first: int) -> None:
    """Elements lie side by side, row by row; of an axis of one element any stride will do."""
    step = "1"
    for axis in reversed(range(first, first + rank)):
        is_dense = text.let(f"icmp eq i64 {text.word(axis, 'i64', '%strides')}, {step}")
        single = text.let(f"icmp eq i64 {text.word(axis, 'i64', '%shapes')}, 1")
        text.require_true(text.let(f"or i1 {is_dense}, {single}"))
        if axis > first:
            step = text.let(f"mul i64 {step}, {text.word(axis, 'i64', '%shapes')}")


def _require_disjoint(text: _Text, signature: Signature, first: list[int]) -> None:
    """No element of an output twice in memory, none within the reach of an input or another output.

    An input that an output updates may be that output itself: equal in address and in strides.
    ``stride > sum of (extent - 1) * stride over the inner axes`` suffices for the first. Of an
    array without elements the reach is nonsense, and harmless: it only asks the slow path.
    """
    inputs = len(signature.inputs)
    ends: list[tuple[str, str]] = []
    for number, argument in enumerate((*signature.inputs, *signature.outputs)):
        reach = "0"
        for axis in reversed(range(len(argument.shape))):
            extent = text.word(first[number] + axis, "i64", "%shapes")
            stride = text.word(first[number] + axis, "i64", "%strides")
            if number >= inputs:
                beyond = text.let(f"icmp sgt i64 {stride}, {reach}")
                single = text.let(f"icmp sle i64 {extent}, 1")
                text.require_true(text.let(f"or i1 {beyond}, {single}"))
            steps = text.let(f"sub i64 {extent}, 1")
            reach = text.let(f"add i64 {reach}, {text.let(f'mul i64 {steps}, {stride}')}")
        elements = text.let(f"add i64 {reach}, 1")
        width = numpy_dtype(argument.dtype).itemsize
        start = text.word(number, "i64", "%pointers")
        end = text.let(f"add i64 {start}, {text.let(f'mul i64 {elements}, {width}')}")
        for other, (other_start, other_end) in enumerate(ends if number >= inputs else ()):
            before = text.let(f"icmp ule i64 {end}, {other_start}")
            after = text.let(f"icmp ule i64 {other_end}, {start}")
            legal = text.let(f"or i1 {before}, {after}")
            if (other, number - inputs) in signature.updated:
                same = text.let(f"icmp eq i64 {start}, {other_start}")
                for axis in range(len(argument.shape)):
                    mine = text.word(first[number] + axis, "i64", "%strides")
                    theirs = text.word(first[other] + axis, "i64", "%strides")
                    same = text.let(f"and i1 {same}, {text.let(f'icmp eq i64 {mine}, {theirs}')}")
                legal = text.let(f"or i1 {legal}, {same}")
            text.require_true(legal)
        ends.append((start, end))


def _allocate(
    text: _Text,
    output: Argument,
    number: int,
    extents: list[str],
    first: int,
    row: str,
    result: str,
) -> None:
    """A new array at `result`: numpy's, or by the DLPack allocator of the first input's type."""
    shape, strides = text.at("%shapes", first), text.at("%strides", first)
    for axis, extent in enumerate(extents):
        text.require("sge", "i64", extent, 0)
        text.do(f"store i64 {extent}, ptr {text.at(shape, axis)}")
    status = text.let(
        f"call i32 @offcut_allocate(ptr %table, ptr {row}, ptr {text.word(len(FIELDS) + number)}, "
        f"i32 {len(extents)}, i32 {dlpack_code(output.dtype)}, ptr {shape}, ptr {strides}, "
        f"ptr {result}, ptr {text.at('%pointers', number)})"
    )
    text.require("eq", "i32", status, 0)


def _run(text: _Text, signature: Signature, constants: int, work: bool) -> None:
    """The kernel itself, with its workspace, and without the interpreter's lock where it is long."""
    arguments = len(signature.inputs) + len(signature.outputs)
    for constant in range(constants):
        address = text.word(len(FIELDS) + arguments + constant)
        text.do(f"store ptr {address}, ptr {text.at('%pointers', arguments + constant)}")
    needed = text.let("call i64 @offcut_workspace(ptr %sizes)")
    text.do(f"%scratches = icmp sgt i64 {needed}, 0")
    none = text.block
    text.do("br i1 %scratches, label %scratch, label %go")
    text.label("scratch")
    padded = text.let(f"add i64 {needed}, {scratch.ALIGNMENT_SLACK}")
    block = text.let(f"call ptr {text.load('PyMem_RawMalloc')}(i64 {padded})")
    empty = text.let(f"icmp eq ptr {block}, null")
    text.do(f"br i1 {empty}, label %undo, label %align")
    text.label("align")
    start = text.let(f"ptrtoint ptr {block} to i64")
    result = text.word(len(signature.inputs), "i64", "%pointers")
    wanted = text.let(f"add i64 {result}, {scratch.SCRATCH_OFFSET}")
    ahead = text.let(f"and i64 {text.let(f'sub i64 {wanted}, {start}')}, {scratch.PAGE - 1}")
    above = text.let(f"add i64 {text.let(f'add i64 {start}, {ahead}')}, {scratch.ALIGNMENT - 1}")
    whole = text.let(f"and i64 {above}, {-scratch.ALIGNMENT}")
    aligned = text.let(f"inttoptr i64 {whole} to ptr")
    text.do("br label %go")
    text.label("go")
    text.do(f"%block = phi ptr [ null, %{none} ], [ {block}, %align ]")
    text.do(f"%workspace = phi ptr [ null, %{none} ], [ {aligned}, %align ]")
    if work:
        amount = text.let("call i64 @offcut_work(ptr %sizes)")
    else:
        amount = "0"
        axis = 0
        for argument in (*signature.inputs, *signature.outputs):
            elements = "1"
            for _ in argument.shape:
                extent = text.word(axis, "i64", "%shapes")
                elements = text.let(f"mul i64 {elements}, {extent}")
                axis += 1
            amount = text.let(f"add i64 {amount}, {elements}")
    long = text.let(f"icmp sgt i64 {amount}, {RELEASE_ABOVE}")
    call = "call i32 @offcut_entry(ptr %pointers, ptr %sizes, ptr %strides, ptr %workspace)"
    text.do(f"br i1 {long}, label %unlocked, label %locked")
    text.label("unlocked")
    state = text.let(f"call ptr {text.load('PyEval_SaveThread')}()")
    free_status = text.let(call)
    text.do(f"call void {text.load('PyEval_RestoreThread')}(ptr {state})")
    text.do("br label %done")
    text.label("locked")
    held_status = text.let(call)
    text.do("br label %done")
    text.label("done")
    text.do(f"%status = phi i32 [ {free_status}, %unlocked ], [ {held_status}, %locked ]")
    text.do("br i1 %scratches, label %free, label %freed")
    text.label("free")
    text.do(f"call void {text.load('PyMem_RawFree')}(ptr %block)")
    text.do("br label %freed")
    text.label("freed")
    ok = text.let("icmp eq i32 %status, 0")
    text.do(f"br i1 {ok}, label %succeed, label %undo")
    text.label("succeed")
    text.do("br i1 %fresh, label %return, label %share")
    text.label("share")
    text.do(f"call void {text.load('Py_IncRef')}(ptr %out)")
    text.do("ret ptr %out")
    text.label("return")
    text.do(f"ret ptr {_result(text, len(signature.outputs))}")


def _result(text: _Text, count: int) -> str:
    """What a call gives back that was given no ``out=``: the new array, or a tuple of them."""
    if count == 1:
        return text.word(0, base="%results")
    made = text.let(f"call ptr {text.load('PyTuple_New')}(i64 {count})")
    text.otherwise = "clear"
    text.require("ne", "ptr", made, "null")
    put = text.load("PyTuple_SetItem")
    for position in range(count):
        result = text.word(position, base="%results")
        text.let(f"call i32 {put}(ptr {made}, i64 {position}, ptr {result})")
    return made
