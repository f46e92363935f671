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
from offcut.backends.host.array_ir import ALLOCATE_ARRAY, READ_ARRAY, BuiltinWriter, dlpack_code
from offcut.backends.host.builtin_function import (
    ALIGNED,
    FIELDS,
    KEYWORD_FIELDS,
    TYPE_OF,
    WRITEABLE,
)
from offcut.backends.llvm.ir import FunctionWriter, affine, extent_of
from offcut.core.dtypes import numpy_dtype
from offcut.core.extents import factor_of, is_checked
from offcut.core.extents import solving_order as order_of_sizes

RELEASE_ABOVE = 200_000
"""Work (flop, or elements read and written) above which other Python threads run meanwhile."""


def solving_order(
    signature: Signature, known: Collection[str] = ()
) -> tuple[tuple[str, int, int], ...]:
    """Which input's extent gives which size: (size, input, axis), in an order that can be followed.

    An extent gives a size when it is affine in that one unknown, the others being `known` or
    solved before. Sizes that do not occur in the result are determined by no shape.
    """
    places = [(n, axis) for n, one in enumerate(signature.inputs) for axis in range(len(one.shape))]
    shapes = [signature.inputs[number].shape[axis] for number, axis in places]
    return tuple((name, *places[number]) for name, number in order_of_sizes(shapes, known))


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
    text = _Entry()
    extents = (extent for one in (*signature.inputs, *signature.outputs) for extent in one.shape)
    fast = len(order) + len(free) == len(signature.sizes) and all(map(is_checked, extents))
    if fast:
        _fast_body(text, signature, order, constants, work, dense)
    slow, call = text.field("slow"), text.field("PyObject_Vectorcall")
    result = text.f.let(f"call ptr {call}(ptr {slow}, ptr %args, i64 %nargs, ptr %kwnames)")
    text.f.do(f"ret ptr {result}")
    reading = READ_ARRAY + ALLOCATE_ARRAY if fast else ""
    return f"{reading}\n{text.function('offcut_fastcall', 'noinline optnone')}"


class _Entry(BuiltinWriter):
    """The instructions of the function. Each is written where it stands: no path past it reads what it gives.

    otherwise  the block of calls that are not good and plain
    """

    def __init__(self) -> None:
        super().__init__(FIELDS, FunctionWriter(reuses=False))
        self.otherwise = "%slow"

    def check(self, kind: str, type_: str, one: str, other: str | int) -> None:
        """Go on where the comparison holds, else to the block `otherwise`."""
        self.check_true(self.f.let(f"icmp {kind} {type_} {one}, {other}"))

    def check_true(self, holds: str) -> None:
        """Go on where the i1 holds, else to the block `otherwise`."""
        self.require(holds, self.otherwise)

    def of_table(self, number: int) -> str:
        """Return the pointer that is a word of the table."""
        return self.word(self.table, number, "ptr")

    def jump(self, label: str) -> None:
        """End a block."""
        self.f.do(f"br label {label}")


def _fast_body(
    text: _Entry,
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
        text.f.do(f"%{name} = alloca [{max(words, 1)} x i64]")
    text.check("eq", "i64", "%nargs", len(inputs))
    free = free_sizes(signature)
    keyword_values = _keywords(text, len(inputs), free, len(FIELDS) + len(arguments) + constants)

    rows = []
    for number, argument in enumerate(inputs):
        array = text.word("%args", number, "ptr")
        rows.append(_read(text, argument, number, array, first[number], ALIGNED))
    sizes = dict(zip(free, keyword_values, strict=True))
    solved = set()
    for name, number, axis in order:
        extent = inputs[number].shape[axis]
        extent_word = text.word("%shapes", first[number] + axis)
        coef = factor_of(extent, name)
        rest = extent_of(text.f, extent, sizes, without=name)
        value = extent_word if rest == "0" else text.f.let(f"sub i64 {extent_word}, {rest}")
        if coef != 1:
            over = text.f.let(f"srem i64 {value}, {coef}")
            text.check("eq", "i64", over, 0)
            value = text.f.let(f"sdiv i64 {value}, {coef}")
        sizes[name] = value
        solved.add((number, axis))
    for position, facts in enumerate(signature.sizes):
        value = sizes[facts.name]
        text.check("sge", "i64", value, facts.min)
        text.check("sle", "i64", value, facts.max)
        if facts.multiple_of != 1:
            text.check("eq", "i64", text.f.let(f"srem i64 {value}, {facts.multiple_of}"), 0)
        text.f.do(f"store i64 {value}, ptr {text.place('%sizes', position)}")
    for number, argument in enumerate(inputs):
        for axis, extent in enumerate(argument.shape):
            if (number, axis) not in solved:
                extent_word = text.word("%shapes", first[number] + axis)
                text.check("eq", "i64", extent_word, extent_of(text.f, extent, sizes))
        if dense:
            _require_dense(text, len(argument.shape), first[number])
    for relation in signature.relations:
        value = affine(text.f, relation.const, relation.terms, sizes)
        if relation.kind == "mod":
            value = text.f.let(f"srem i64 {value}, {relation.modulus}")
        text.check("sge" if relation.kind == ">=" else "eq", "i64", value, 0)
    shapes = [[extent_of(text.f, extent, sizes) for extent in output.shape] for output in outputs]
    numbered = list(enumerate(zip(outputs, shapes, strict=True), len(inputs)))
    text.f.do("%fresh = icmp eq ptr %out, null")
    text.f.do("br i1 %fresh, label %allocate, label %given")

    text.f.start("%given")
    for (number, (output, extents)), array in zip(
        numbered, _output_objects(text, len(outputs)), strict=True
    ):
        _read(text, output, number, array, first[number], ALIGNED | WRITEABLE)
        for axis, extent_ in enumerate(extents):
            text.check("eq", "i64", text.word("%shapes", first[number] + axis), extent_)
        if dense:
            _require_dense(text, len(extents), first[number])
    _require_disjoint(text, signature, first)
    text.jump("%run")

    text.f.start("%allocate")
    for position in range(len(outputs)):
        text.f.do(f"store ptr null, ptr {text.place('%results', position)}")
    text.otherwise = "%undo"
    like = rows[0] if rows else text.table
    for position, (number, (output, extents)) in enumerate(numbered):
        result = text.place("%results", position)
        _allocate(text, output, number, extents, first[number], like, result)
    text.jump("%run")
    text.f.start("%run")
    _run(text, signature, constants, work)
    if free:
        text.f.start("%forget")
        text.f.do(f"call void {text.field('PyErr_Clear')}()")
        text.jump("%slow")
    text.f.start("%clear")
    text.f.do(f"call void {text.field('PyErr_Clear')}()")
    text.jump("%undo")
    text.f.start("%undo")
    text.f.do("br i1 %fresh, label %drop, label %slow")
    text.f.start("%drop")
    for position in range(len(outputs)):
        result = text.word("%results", position, "ptr")
        text.f.do(f"call void {text.field('Py_DecRef')}(ptr {result})")
    text.jump("%slow")
    text.f.start("%slow")


def _keywords(text: _Entry, count: int, free: Sequence[str], words: int) -> list[str]:
    """Set ``%out`` to what is given for ``out=``, null without; return the values of the sizes that are given by keyword.

    count  of positional arguments
    words  the word of the table from which on `keyword_words` stand. A name that a caller writes is the object there; one that he
           reads or computes, as the keys of ``**sizes`` may be, is compared by its characters
    """
    kind, as_integer = range(words, words + len(KEYWORD_FIELDS))
    names = words + len(KEYWORD_FIELDS)
    compare = names + len(free)
    text.f.do("%outs = alloca ptr")
    text.f.do("store ptr null, ptr %outs")
    if not free:
        unnamed = text.f.let("icmp eq ptr %kwnames, null")
        text.f.do(f"br i1 {unnamed}, label %begin, label %keyword")
        text.f.start("%keyword")
    else:
        text.check("ne", "ptr", "%kwnames", "null")
        text.f.do(f"%values = alloca [{len(free)} x ptr]")
        for position in range(len(free)):
            text.f.do(f"store ptr null, ptr {text.place('%values', position)}")
    size = text.f.let(f"call i64 {text.field('PyTuple_Size')}(ptr %kwnames)")
    text.check("sle", "i64", size, len(free) + 1)
    for slot in range(len(free) + 1):
        is_given = text.f.let(f"icmp slt i64 {slot}, {size}")
        text.f.do(f"br i1 {is_given}, label %slot{slot}, label %named")
        text.f.start(f"%slot{slot}")
        name = text.f.let(f"call ptr {text.field('PyTuple_GetItem')}(ptr %kwnames, i64 {slot})")
        value = text.word("%args", count + slot, "ptr")
        places = {text.of_table(names + i): text.place("%values", i) for i in range(len(free))}
        places[text.field("out_name")] = "%outs"

        def store_where(holds: str, place: str, label: str, value: str = value) -> None:
            text.f.do(f"br i1 {holds}, label %is.{label}, label %not.{label}")
            text.f.start(f"%is.{label}")
            text.f.do(f"store ptr {value}, ptr {place}")
            text.f.do(f"br label %next{label.partition('.')[0]}")
            text.f.start(f"%not.{label}")

        for number, (known, place) in enumerate(places.items()):
            same = text.f.let(f"icmp eq ptr {name}, {known}")
            store_where(same, place, f"{slot}.object{number}")
        if free:
            for number, (known, place) in enumerate(places.items()):
                order = text.f.let(f"call i32 {text.of_table(compare)}(ptr {name}, ptr {known})")
                same = text.f.let(f"icmp eq i32 {order}, 0")
                store_where(same, place, f"{slot}.text{number}")
        text.jump("%slow")
        text.f.start(f"%next{slot}")
    text.jump("%named")
    text.f.start("%named")
    values = []
    for position in range(len(free)):
        value = text.word("%values", position, "ptr")
        text.check("ne", "ptr", value, "null")
        text.check("eq", "ptr", text.word(value, TYPE_OF // 8, "ptr"), text.of_table(kind))
        values.append(text.f.let(f"call i64 {text.of_table(as_integer)}(ptr {value})"))
        text.otherwise = "%forget"
        text.check(
            "ne", "i64", values[-1], -1
        )  # also what an int beyond 64 bits gives, with an error
        text.otherwise = "%slow"
    text.jump("%begin")
    text.f.start("%begin")
    text.f.do("%out = load ptr, ptr %outs")
    return values


def _output_objects(text: _Entry, count: int) -> list[str]:
    """Return the arrays of ``out=``: the object itself, or the items of a plain tuple where there are several."""
    if count == 1:
        return ["%out"]
    type_ = text.word("%out", TYPE_OF // 8, "ptr")
    text.check("eq", "ptr", type_, text.field("tuple"))
    size = text.f.let(f"call i64 {text.field('PyTuple_Size')}(ptr %out)")
    text.check("eq", "i64", size, count)
    item = text.field("PyTuple_GetItem")
    return [text.f.let(f"call ptr {item}(ptr %out, i64 {position})") for position in range(count)]


def _read(text: _Entry, argument: Argument, number: int, array: str, first: int, flags: int) -> str:
    """Read an argument into shapes, strides and pointers; the row of its type, the table if numpy."""
    shift = numpy_dtype(argument.dtype).itemsize.bit_length() - 1
    row = text.f.let(
        f"call ptr @offcut_array(ptr {text.table}, ptr {array}, ptr {text.of_table(len(FIELDS) + number)}, "
        f"i32 {len(argument.shape)}, i64 {shift}, i32 {dlpack_code(argument.dtype)}, i32 {flags}, "
        f"ptr {text.place('%shapes', first)}, ptr {text.place('%strides', first)}, "
        f"ptr {text.place('%pointers', number)})"
    )
    text.check("ne", "ptr", row, "null")
    return row


def _require_dense(text: _Entry, rank: int, first: int) -> None:
    """Elements lie side by side, row by row; of an axis of one element any stride will do."""
    step = "1"
    for axis in reversed(range(first, first + rank)):
        is_dense = text.f.let(f"icmp eq i64 {text.word('%strides', axis)}, {step}")
        single = text.f.let(f"icmp eq i64 {text.word('%shapes', axis)}, 1")
        text.check_true(text.f.let(f"or i1 {is_dense}, {single}"))
        if axis > first:
            step = text.f.let(f"mul i64 {step}, {text.word('%shapes', axis)}")


def _require_disjoint(text: _Entry, signature: Signature, first: list[int]) -> None:
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
            extent = text.word("%shapes", first[number] + axis)
            stride = text.word("%strides", first[number] + axis)
            if number >= inputs:
                beyond = text.f.let(f"icmp sgt i64 {stride}, {reach}")
                single = text.f.let(f"icmp sle i64 {extent}, 1")
                text.check_true(text.f.let(f"or i1 {beyond}, {single}"))
            steps = text.f.let(f"sub i64 {extent}, 1")
            reach = text.f.let(f"add i64 {reach}, {text.f.let(f'mul i64 {steps}, {stride}')}")
        elements = text.f.let(f"add i64 {reach}, 1")
        width = numpy_dtype(argument.dtype).itemsize
        start = text.word("%pointers", number)
        end = text.f.let(f"add i64 {start}, {text.f.let(f'mul i64 {elements}, {width}')}")
        for other, (other_start, other_end) in enumerate(ends if number >= inputs else ()):
            before = text.f.let(f"icmp ule i64 {end}, {other_start}")
            after = text.f.let(f"icmp ule i64 {other_end}, {start}")
            legal = text.f.let(f"or i1 {before}, {after}")
            if (other, number - inputs) in signature.updated:
                same = text.f.let(f"icmp eq i64 {start}, {other_start}")
                for axis in range(len(argument.shape)):
                    mine = text.word("%strides", first[number] + axis)
                    theirs = text.word("%strides", first[other] + axis)
                    same = text.f.let(
                        f"and i1 {same}, {text.f.let(f'icmp eq i64 {mine}, {theirs}')}"
                    )
                legal = text.f.let(f"or i1 {legal}, {same}")
            text.check_true(legal)
        ends.append((start, end))


def _allocate(
    text: _Entry,
    output: Argument,
    number: int,
    extents: list[str],
    first: int,
    row: str,
    result: str,
) -> None:
    """A new array at `result`: numpy's, or by the DLPack allocator of the first input's type."""
    shape, strides = text.place("%shapes", first), text.place("%strides", first)
    for axis, extent in enumerate(extents):
        text.check("sge", "i64", extent, 0)
        text.f.do(f"store i64 {extent}, ptr {text.place(shape, axis)}")
    status = text.f.let(
        f"call i32 @offcut_allocate(ptr {text.table}, ptr {row}, ptr {text.of_table(len(FIELDS) + number)}, "
        f"i32 {len(extents)}, i32 {dlpack_code(output.dtype)}, ptr {shape}, ptr {strides}, "
        f"ptr {result}, ptr {text.place('%pointers', number)})"
    )
    text.check("eq", "i32", status, 0)


def _run(text: _Entry, signature: Signature, constants: int, work: bool) -> None:
    """The kernel itself, with its workspace, and without the interpreter's lock where it is long."""
    arguments = len(signature.inputs) + len(signature.outputs)
    for constant in range(constants):
        address = text.of_table(len(FIELDS) + arguments + constant)
        text.f.do(f"store ptr {address}, ptr {text.place('%pointers', arguments + constant)}")
    needed = text.f.let("call i64 @offcut_workspace(ptr %sizes)")
    text.f.do(f"%scratches = icmp sgt i64 {needed}, 0")
    none = text.f.current
    text.f.do("br i1 %scratches, label %scratch, label %go")
    text.f.start("%scratch")
    padded = text.f.let(f"add i64 {needed}, {scratch.ALIGNMENT_SLACK}")
    block = text.f.let(f"call ptr {text.field('PyMem_RawMalloc')}(i64 {padded})")
    empty = text.f.let(f"icmp eq ptr {block}, null")
    text.f.do(f"br i1 {empty}, label %undo, label %align")
    text.f.start("%align")
    start = text.f.let(f"ptrtoint ptr {block} to i64")
    result = text.word("%pointers", len(signature.inputs))
    wanted = text.f.let(f"add i64 {result}, {scratch.SCRATCH_OFFSET}")
    ahead = text.f.let(f"and i64 {text.f.let(f'sub i64 {wanted}, {start}')}, {scratch.PAGE - 1}")
    above = text.f.let(
        f"add i64 {text.f.let(f'add i64 {start}, {ahead}')}, {scratch.ALIGNMENT - 1}"
    )
    whole = text.f.let(f"and i64 {above}, {-scratch.ALIGNMENT}")
    aligned = text.f.let(f"inttoptr i64 {whole} to ptr")
    text.jump("%go")
    text.f.start("%go")
    text.f.do(f"%block = phi ptr [ null, {none} ], [ {block}, %align ]")
    text.f.do(f"%workspace = phi ptr [ null, {none} ], [ {aligned}, %align ]")
    if work:
        amount = text.f.let("call i64 @offcut_work(ptr %sizes)")
    else:
        amount = "0"
        axis = 0
        for argument in (*signature.inputs, *signature.outputs):
            elements = "1"
            for _ in argument.shape:
                extent = text.word("%shapes", axis)
                elements = text.f.let(f"mul i64 {elements}, {extent}")
                axis += 1
            amount = text.f.let(f"add i64 {amount}, {elements}")
    long = text.f.let(f"icmp sgt i64 {amount}, {RELEASE_ABOVE}")
    call = "call i32 @offcut_entry(ptr %pointers, ptr %sizes, ptr %strides, ptr %workspace)"
    text.f.do(f"br i1 {long}, label %unlocked, label %locked")
    text.f.start("%unlocked")
    state = text.f.let(f"call ptr {text.field('PyEval_SaveThread')}()")
    free_status = text.f.let(call)
    text.f.do(f"call void {text.field('PyEval_RestoreThread')}(ptr {state})")
    text.jump("%done")
    text.f.start("%locked")
    held_status = text.f.let(call)
    text.jump("%done")
    text.f.start("%done")
    text.f.do(f"%status = phi i32 [ {free_status}, %unlocked ], [ {held_status}, %locked ]")
    text.f.do("br i1 %scratches, label %free, label %freed")
    text.f.start("%free")
    text.f.do(f"call void {text.field('PyMem_RawFree')}(ptr %block)")
    text.jump("%freed")
    text.f.start("%freed")
    ok = text.f.let("icmp eq i32 %status, 0")
    text.f.do(f"br i1 {ok}, label %succeed, label %undo")
    text.f.start("%succeed")
    text.f.do("br i1 %fresh, label %return, label %share")
    text.f.start("%share")
    text.f.do(f"call void {text.field('Py_IncRef')}(ptr %out)")
    text.f.do("ret ptr %out")
    text.f.start("%return")
    text.f.do(f"ret ptr {_result(text, len(signature.outputs))}")


def _result(text: _Entry, count: int) -> str:
    """What a call gives back that was given no ``out=``: the new array, or a tuple of them."""
    if count == 1:
        return text.word("%results", 0, "ptr")
    result_tuple = text.f.let(f"call ptr {text.field('PyTuple_New')}(i64 {count})")
    text.otherwise = "%clear"
    text.check("ne", "ptr", result_tuple, "null")
    put = text.field("PyTuple_SetItem")
    for position in range(count):
        result = text.word("%results", position, "ptr")
        text.f.let(f"call i32 {put}(ptr {result_tuple}, i64 {position}, ptr {result})")
    return result_tuple
