"""LLVM IR of a builtin function that runs entries one after the other at sets of sizes that are known.

What it reads is data, so that one function serves all models of a process. Behind the fields of `builtin_function` the table of the
builtin has one word, the address of a *head*; from that a list of *records* begins, of which each is the calls at one set of sizes, by the
shapes of the arrays::

    head    first record, arena, bytes of the arena, whether a call runs, counts: inputs, outputs, axes of all of each; a context
            variable, while which is not None no call is made; then of each input and each output: numpy's element type, rank, log2 of an element's bytes, DLPack's element type
    record  next record, its owner, bytes of the arena that it takes, where in the arena scratch begins, bases (`FIRST_BASE`), the four
            words of a `CallSequence`, whether other Python threads run meanwhile, limits, count of limits;
            then the extents of all inputs, the extents of all outputs, the strides of all outputs in elements
    limit   address of a number, whether it is a double and no float, the limit as a double

It takes arrays as `offcut.backends.host.fast_entry` does, elements side by side, and returns a tuple of new ones. Any other call, one that
measures more than a limit, and one that ends with a status other than 0, it hands to a Python callable with the same arguments. One call
at a time has the arena and the records: a second, where the first lets other threads run, is handed over, too.
"""

from __future__ import annotations

from offcut.backends.host.array_ir import ALLOCATE_ARRAY, READ_ARRAY, BuiltinWriter
from offcut.backends.host.builtin_function import ALIGNED, DATA, FIELDS

SYMBOL = "offcut_sized_call"
HEAD = (
    *("first", "arena", "arena_bytes", "busy", "inputs", "outputs", "axes", "result_axes"),
    *("observer", "none", "PyContextVar_Get", "PyArray_NewFromDescr"),
)
RECORD = (
    *("next", "owner", "arena_bytes", "scratch", "bases"),
    *("pointers", "pointer_count", "calls", "call_count"),
    *("unlocked", "limits", "limit_count"),
)
"""The words of each, in order; those of arguments, or extents, follow."""
ARGUMENT_WORDS, LIMIT_WORDS = 4, 3
FIRST_BASE = 1
"""The number of the base that is the arena; those of inputs and of outputs follow it."""


def sized_call_ir(in_turn: str) -> str:
    """Return LLVM IR of ``ptr @SYMBOL(ptr %self, ptr %args, i64 %nargs, ptr %kwnames)``.

    in_turn  the symbol of a function of `call_sequence`, in the same module
    """
    writer = _Writer(in_turn)
    writer.write()
    return f"{READ_ARRAY}{ALLOCATE_ARRAY}\n{writer.function(SYMBOL)}"


class _Writer(BuiltinWriter):
    """The instructions of the function."""

    def __init__(self, in_turn: str) -> None:
        super().__init__(FIELDS)
        self.in_turn = in_turn
        self.slow, self.undo, self.failed = map(self.f.name, ("slow", "undo", "failed"))

    def write(self) -> None:
        """Write the whole function."""
        f = self.f
        self.head = self.word(self.table, len(FIELDS), "ptr")
        self.require(f.let("icmp eq ptr %kwnames, null"), self.slow)
        inputs, outputs = self._of_head("inputs"), self._of_head("outputs")
        self.require(f.let(f"icmp eq i64 %nargs, {inputs}"), self.slow)
        busy = self._of_head("busy")
        self.require(f.let(f"icmp eq i64 {busy}, 0"), self.slow)
        self._require_unobserved()
        axes = self._of_head("axes")
        room = f.let(f"add i64 {axes}, 1")
        self.shapes = f.let(f"alloca i64, i64 {room}")
        self.strides = f.let(f"alloca i64, i64 {room}")
        count = f.let(f"add i64 {inputs}, 1")
        addresses = f.let(f"alloca i64, i64 {count}")
        like = f.slot("ptr")
        f.do(f"store ptr {self.table}, ptr {like}")
        self._read_inputs(inputs, addresses, like)
        record = self._find_record(axes)
        self._check_arena(record)
        self._run(record, inputs, outputs, addresses, like, axes)

    def _of_head(self, name: str, kind: str = "i64") -> str:
        return self.word(self.head, HEAD.index(name), kind)

    def _of_record(self, record: str, name: str, kind: str = "i64") -> str:
        return self.word(record, RECORD.index(name), kind)

    def _set_head(self, name: str, value: int) -> None:
        at = self.f.let(f"getelementptr i64, ptr {self.head}, i64 {HEAD.index(name)}")
        self.f.do(f"store i64 {value}, ptr {at}")

    def _argument(self, number: str) -> tuple[str, str, str, str]:
        """Return the words of the head about an argument: element type, rank, shift, code."""
        f = self.f
        at = f.let(f"mul i64 {number}, {ARGUMENT_WORDS}")
        row = f.let(
            f"getelementptr i64, ptr {self.head}, i64 {f.let(f'add i64 {at}, {len(HEAD)}')}"
        )
        descr, rank, shift, code = (
            self.word(row, place, kind) for place, kind in enumerate(("ptr", "i64", "i64", "i64"))
        )
        return descr, rank, shift, f.let(f"trunc i64 {code} to i32")

    def _require_unobserved(self) -> None:
        """Check that the context variable is None."""
        f, observer = self.f, self.f.slot("ptr")
        variable, get = self._of_head("observer", "ptr"), self._of_head("PyContextVar_Get", "ptr")
        status = f.let(f"call i32 {get}(ptr {variable}, ptr null, ptr {observer})")
        self.require(f.let(f"icmp eq i32 {status}, 0"), self.slow)
        value = f.let(f"load ptr, ptr {observer}")
        f.do(f"call void {self.field('Py_DecRef')}(ptr {value})")
        none = self._of_head("none", "ptr")
        self.require(f.let(f"icmp eq ptr {value}, {none}"), self.slow)

    def _read_inputs(self, inputs: str, addresses: str, like: str) -> None:
        """Read every input: its shape and its address; the row of the first one's type."""
        f, at = self.f, self.f.slot("i64")
        f.do(f"store i64 0, ptr {at}")
        with f.loop("0", inputs) as number:
            descr, rank, shift, code = self._argument(number)
            array = self.word("%args", number, "ptr")
            axis = f.let(f"load i64, ptr {at}")
            shape, strides = (
                f.let(f"getelementptr i64, ptr {base}, i64 {axis}")
                for base in (self.shapes, self.strides)
            )
            to = f.let(f"getelementptr i64, ptr {addresses}, i64 {number}")
            rank32 = f.let(f"trunc i64 {rank} to i32")
            row = f.let(
                f"call ptr @offcut_array(ptr {self.table}, ptr {array}, ptr {descr}, i32 {rank32}, i64 {shift}, "
                f"i32 {code}, i32 {ALIGNED}, ptr {shape}, ptr {strides}, ptr {to})"
            )
            self.require(f.let(f"icmp ne ptr {row}, null"), self.slow)
            with f.when(f.let(f"icmp eq i64 {number}, 0")):
                f.do(f"store ptr {row}, ptr {like}")
            self._require_dense(rank, shape, strides)
            f.do(f"store i64 {f.let(f'add i64 {axis}, {rank}')}, ptr {at}")

    def _require_dense(self, rank: str, shape: str, strides: str) -> None:
        """Check that elements lie side by side, row by row; of an axis of one element, and where there is none, any stride will do."""
        f, step, dense = self.f, self.f.slot("i64"), self.f.slot("i1")
        f.do(f"store i64 1, ptr {step}")
        f.do(f"store i1 true, ptr {dense}")
        last = f.let(f"sub i64 {rank}, 1")
        with f.loop("0", rank) as inner:
            axis = f.let(f"sub i64 {last}, {inner}")
            extent, stride = self.word(shape, axis), self.word(strides, axis)
            own = f.let(f"load i64, ptr {step}")
            is_dense = f.let(f"icmp eq i64 {stride}, {own}")
            single = f.let(f"icmp eq i64 {extent}, 1")
            good = f.let(f"or i1 {is_dense}, {single}")
            every = f.let(f"and i1 {good}, {f.let(f'load i1, ptr {dense}')}")
            f.do(f"store i1 {every}, ptr {dense}")
            f.do(f"store i64 {f.let(f'mul i64 {own}, {extent}')}, ptr {step}")
        none = f.let(f"icmp eq i64 {f.let(f'load i64, ptr {step}')}, 0")
        every = f.let(f"load i1, ptr {dense}")
        self.require(f.let(f"or i1 {every}, {none}"), self.slow)

    def _find_record(self, axes: str) -> str:
        """Return the record of these shapes."""
        f = self.f
        place, differs = f.slot("ptr"), f.slot("i64")
        f.do(f"store ptr {self._of_head('first', 'ptr')}, ptr {place}")
        search, compare, following, label_found = (
            f.name(stem) for stem in ("search", "compare", "following", "found")
        )
        f.block(search)
        record = f.let(f"load ptr, ptr {place}")
        none = f.let(f"icmp eq ptr {record}, null")
        f.do(f"br i1 {none}, label {self.slow}, label {compare}")
        with f.within(compare):
            f.do(f"store i64 0, ptr {differs}")
            with f.loop("0", axes) as axis:
                own = self.word(record, f.let(f"add i64 {axis}, {len(RECORD)}"))
                bits = f.let(f"xor i64 {self.word(self.shapes, axis)}, {own}")
                others = f.let(f"load i64, ptr {differs}")
                f.do(f"store i64 {f.let(f'or i64 {bits}, {others}')}, ptr {differs}")
            same = f.let(f"icmp eq i64 {f.let(f'load i64, ptr {differs}')}, 0")
            f.do(f"br i1 {same}, label {label_found}, label {following}")
        with f.within(following):
            f.do(f"store ptr {self._of_record(record, 'next', 'ptr')}, ptr {place}")
            f.do(f"br label {search}")
        f.start(label_found)
        return record

    def _check_arena(self, record: str) -> None:
        needed_bytes, arena_bytes = (
            self._of_record(record, "arena_bytes"),
            self._of_head("arena_bytes"),
        )
        self.require(self.f.let(f"icmp sle i64 {needed_bytes}, {arena_bytes}"), self.slow)

    def _run(
        self, record: str, inputs: str, outputs: str, addresses: str, like: str, axes: str
    ) -> None:
        """Allocate the results, run the calls, return the results.

        Allocating may run Python code, which may call the same model, or forget the record: it is kept, and taken, before.
        """
        f = self.f
        count = f.let(f"add i64 {outputs}, 1")
        results = f.let(f"alloca ptr, i64 {count}")
        with f.loop("0", outputs) as number:
            f.do(f"store ptr null, ptr {self.place(results, number)}")
        owner, self.drop = self._of_record(record, "owner", "ptr"), self.field("Py_DecRef")
        f.do(f"call void {self.field('Py_IncRef')}(ptr {owner})")
        self._set_head("busy", 1)
        bases, arena = self._of_record(record, "bases", "ptr"), self._of_head("arena")
        f.do(f"store i64 {arena}, ptr {self.place(bases, str(FIRST_BASE))}")
        first = self.place(bases, str(FIRST_BASE + 1))
        with f.loop("0", inputs) as number:
            address = self.word(addresses, number)
            f.do(f"store i64 {address}, ptr {self.place(first, number)}")
        self._allocate(record, inputs, outputs, results, self.place(first, inputs), like, axes)
        status = self._call(record, f.let(f"add i64 {arena}, {self._of_record(record, 'scratch')}"))
        within = self._is_within(record)
        succeeded = f.let(f"and i1 {f.let(f'icmp eq i32 {status}, 0')}, {within}")
        self.require(succeeded, self.failed)
        self._release(owner)
        result_tuple = f.let(f"call ptr {self.field('PyTuple_New')}(i64 {outputs})")
        self.require(f.let(f"icmp ne ptr {result_tuple}, null"), self.undo)
        set_item = self.field("PyTuple_SetItem")
        with f.loop("0", outputs) as number:
            result = self.word(results, number, "ptr")
            f.let(f"call i32 {set_item}(ptr {result_tuple}, i64 {number}, ptr {result})")
        f.do(f"ret ptr {result_tuple}")
        with f.within(self.failed):
            self._release(owner)
            f.do(f"br label {self.undo}")
        f.start(self.undo)
        f.do(f"call void {self.field('PyErr_Clear')}()")
        with f.loop("0", outputs) as number:
            f.do(f"call void {self.drop}(ptr {self.word(results, number, 'ptr')})")
        f.block(self.slow)
        slow, vectorcall = self.field("slow"), self.field("PyObject_Vectorcall")
        other = f.let(f"call ptr {vectorcall}(ptr {slow}, ptr %args, i64 %nargs, ptr %kwnames)")
        f.do(f"ret ptr {other}")

    def _release(self, owner: str) -> None:
        """Mark the arena and the records as free for the next call, and drop the reference to the record's owner."""
        self._set_head("busy", 0)
        self.f.do(f"call void {self.drop}(ptr {owner})")

    def _allocate(
        self,
        record: str,
        inputs: str,
        outputs: str,
        results: str,
        bases: str,
        like: str,
        axes: str,
    ) -> None:
        """Make the results, and store the address of each behind `bases`."""
        f = self.f
        at, widest = f.slot("i64"), f.slot("[64 x i64]")
        f.do(f"store i64 {f.let(f'add i64 {axes}, {len(RECORD)}')}, ptr {at}")
        row, result_axes = f.let(f"load ptr, ptr {like}"), self._of_head("result_axes")
        is_numpy = f.let(f"icmp eq ptr {row}, {self.table}")
        ndarray, make = self.field("ndarray"), self._of_head("PyArray_NewFromDescr", "ptr")
        incref = self.field("Py_IncRef")
        with f.loop("0", outputs) as number:
            descr, rank, shift, code = self._argument(f.let(f"add i64 {number}, {inputs}"))
            begin = f.let(f"load i64, ptr {at}")
            shape = self.place(record, begin)
            own = self.place(shape, result_axes)
            rank32 = f.let(f"trunc i64 {rank} to i32")
            result, address = self.place(results, number), self.place(bases, number)
            numpy, other, label_made = f.name("numpy"), f.name("other"), f.name("made")
            f.do(f"br i1 {is_numpy}, label {numpy}, label {other}")
            with f.within(numpy):
                with f.loop("0", rank) as axis:
                    in_bytes = f.let(f"shl i64 {self.word(own, axis)}, {shift}")
                    f.do(f"store i64 {in_bytes}, ptr {self.place(widest, axis)}")
                f.do(f"call void {incref}(ptr {descr})")
                array = f.let(
                    f"call ptr {make}(ptr {ndarray}, ptr {descr}, i32 {rank32}, ptr {shape}, ptr {widest}, "
                    "ptr null, i32 0, ptr null)"
                )
                self.require(f.let(f"icmp ne ptr {array}, null"), self.failed)
                f.do(f"store ptr {array}, ptr {result}")
                f.do(f"store i64 {self.word(array, DATA // 8)}, ptr {address}")
                f.do(f"br label {label_made}")
            with f.within(other):
                status = f.let(
                    f"call i32 @offcut_allocate(ptr {self.table}, ptr {row}, ptr {descr}, i32 {rank32}, i32 {code}, "
                    f"ptr {shape}, ptr {widest}, ptr {result}, ptr {address})"
                )
                self.require(f.let(f"icmp eq i32 {status}, 0"), self.failed)
                with f.loop("0", rank) as axis:
                    alike = f.let(f"icmp eq i64 {self.word(widest, axis)}, {self.word(own, axis)}")
                    single = f.let(f"icmp sle i64 {self.word(shape, axis)}, 1")
                    self.require(f.let(f"or i1 {alike}, {single}"), self.failed)
                f.do(f"br label {label_made}")
            f.start(label_made)
            f.do(f"store i64 {f.let(f'add i64 {begin}, {rank}')}, ptr {at}")

    def _call(self, record: str, scratch: str) -> str:
        """Return the status of the calls."""
        f = self.f
        arguments = ", ".join(
            f"{kind} {self._of_record(record, name, kind)}"
            for name, kind in (
                ("pointers", "ptr"),
                ("pointer_count", "i64"),
                ("calls", "ptr"),
                ("call_count", "i64"),
                ("bases", "ptr"),
            )
        )
        room = f.let(f"inttoptr i64 {scratch} to ptr")
        call = f"call i32 @{self.in_turn}({arguments}, ptr {room})"
        unlocked = f.let(f"icmp ne i64 {self._of_record(record, 'unlocked')}, 0")
        status, apart, label_held, done = (
            f.slot("i32"),
            f.name("apart"),
            f.name("held"),
            f.name("done"),
        )
        f.do(f"br i1 {unlocked}, label {apart}, label {label_held}")
        with f.within(apart):
            state = f.let(f"call ptr {self.field('PyEval_SaveThread')}()")
            f.do(f"store i32 {f.let(call)}, ptr {status}")
            f.do(f"call void {self.field('PyEval_RestoreThread')}(ptr {state})")
            f.do(f"br label {done}")
        with f.within(label_held):
            f.do(f"store i32 {f.let(call)}, ptr {status}")
            f.do(f"br label {done}")
        f.start(done)
        return f.let(f"load i32, ptr {status}")

    def _is_within(self, record: str) -> str:
        """Return an i1: whether all that was measured is at most its limit, and is a number."""
        f, holds = self.f, self.f.slot("i1")
        f.do(f"store i1 true, ptr {holds}")
        limits = self._of_record(record, "limits", "ptr")
        with f.loop("0", self._of_record(record, "limit_count")) as number:
            row = self.place(limits, f.let(f"mul i64 {number}, {LIMIT_WORDS}"))
            address, is_double = self.word(row, 0, "ptr"), self.word(row, 1)
            value, double, single, both = (
                f.slot("double"),
                *map(f.name, ("double", "single", "both")),
            )
            f.do(f"br i1 {f.let(f'icmp ne i64 {is_double}, 0')}, label {double}, label {single}")
            with f.within(double):
                f.do(f"store double {f.let(f'load double, ptr {address}')}, ptr {value}")
                f.do(f"br label {both}")
            with f.within(single):
                narrow = f.let(f"load float, ptr {address}")
                f.do(f"store double {f.let(f'fpext float {narrow} to double')}, ptr {value}")
                f.do(f"br label {both}")
            f.start(both)
            measured_value = f.let(f"load double, ptr {value}")
            within = f.let(f"fcmp ole double {measured_value}, {self.word(row, 2, 'double')}")
            before = f.let(f"load i1, ptr {holds}")
            f.do(f"store i1 {f.let(f'and i1 {before}, {within}')}, ptr {holds}")
        return f.let(f"load i1, ptr {holds}")
