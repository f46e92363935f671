"""LLVM IR of a builtin function: arrays in order, or a dict of them, in; what another callable gives for them, in order or by name, out.

Its table is that of `by_name`. It returns None, with nothing done, for any call but these two, and where the callable
does; what that raises, it raises. Saved models hold its code: the table stays as it is.
"""

from __future__ import annotations

from offcut.backends.host.array_ir import BuiltinWriter
from offcut.backends.host.builtin_function import TYPE_OF
from offcut.backends.host.by_name import FIELDS, PAIR_WORDS, SYMBOL


def by_name_ir() -> str:
    """Return LLVM IR of ``ptr @SYMBOL(ptr %self, ptr %args, i64 %nargs, ptr %kwnames)``."""
    w = BuiltinWriter(FIELDS)
    f = w.f
    decline, by_name, in_order, run = map(f.name, ("decline", "names", "order", "run"))
    none, incref, clear = w.field("none"), w.field("Py_IncRef"), w.field("PyErr_Clear")
    w.require(f.let("icmp eq ptr %kwnames, null"), decline)
    inputs, outputs = w.field("inputs", "i64"), w.field("outputs", "i64")
    tuple_type, decref = w.field("tuple"), w.field("Py_DecRef")
    first = w.place(w.table, len(FIELDS))
    results = w.place(first, f.let(f"mul i64 {inputs}, {PAIR_WORDS}"))
    arrays = f.let(f"alloca ptr, i64 {f.let(f'add i64 {inputs}, 1')}")
    is_named = f.slot("i1")

    def type_of(value: str) -> str:
        return w.word(value, TYPE_OF // 8, "ptr")

    def for_each_array(function: str) -> None:
        with f.loop("0", inputs) as number:
            f.do(f"call void {function}(ptr {w.word(arrays, number, 'ptr')})")

    def row(base: str, number: str) -> str:
        return w.place(base, f.let(f"mul i64 {number}, {PAIR_WORDS}"))

    always = f.let(f"icmp ne i64 {w.field('is_mapping', 'i64')}, 0")
    f.do(f"store i1 {always}, ptr {is_named}")
    some = f.name("some")
    f.do(f"br i1 {f.let('icmp eq i64 %nargs, 1')}, label {some}, label {in_order}")
    with f.within(some):
        arrays_by_name = w.word("%args", 0, "ptr")
        alike = f.let(f"icmp eq ptr {type_of(arrays_by_name)}, {w.field('dict')}")
        f.do(f"br i1 {alike}, label {by_name}, label {in_order}")
        f.start(by_name)
        f.do(f"store i1 true, ptr {is_named}")
        count = w.call("i64", "PyDict_Size", f"ptr {arrays_by_name}")
        w.require(f.let(f"icmp eq i64 {count}, {inputs}"), decline)
        get = w.field("PyDict_GetItem")
        with f.loop("0", inputs) as number:
            array = f.let(
                f"call ptr {get}(ptr {arrays_by_name}, ptr {w.word(row(first, number), 0, 'ptr')})"
            )
            w.require(f.let(f"icmp ne ptr {array}, null"), decline)
            f.do(f"store ptr {array}, ptr {w.place(arrays, number)}")
        f.do(f"br label {run}")
    with f.within(in_order):
        w.require(f.let(f"icmp eq i64 %nargs, {inputs}"), decline)
        with f.loop("0", inputs) as number:
            array = w.word("%args", w.word(row(first, number), 1), "ptr")
            f.do(f"store ptr {array}, ptr {w.place(arrays, number)}")
        f.do(f"br label {run}")
    f.start(run)
    call_arguments = f"ptr {w.field('call')}, ptr {arrays}, i64 {inputs}, ptr null"
    for_each_array(incref)  # a dict may be changed by another thread
    result = w.call("ptr", "PyObject_Vectorcall", call_arguments)
    for_each_array(decref)
    has_result, answered, several = map(f.name, ("there", "answered", "several"))
    pass_on, failed, single = map(f.name, ("pass", "failed", "single"))
    f.do(f"br i1 {f.let(f'icmp ne ptr {result}, null')}, label {has_result}, label {pass_on}")
    f.start(has_result)
    f.do(f"br i1 {f.let(f'icmp ne ptr {result}, {none}')}, label {answered}, label {pass_on}")
    f.start(answered)
    is_tuple = f.let(f"icmp eq ptr {type_of(result)}, {tuple_type}")
    get_item = w.field("PyTuple_GetItem")
    item_slot = f.slot("ptr")

    def item(number: str) -> str:
        """Return a result."""
        f.do(f"store ptr {result}, ptr {item_slot}")
        with f.when(is_tuple):
            place = w.word(row(results, number), 1)
            one = f.let(f"call ptr {get_item}(ptr {result}, i64 {place})")
            f.do(f"store ptr {one}, ptr {item_slot}")
        return f.let(f"load ptr, ptr {item_slot}")

    mapping = f.name("mapping")
    f.do(f"br i1 {f.let(f'load i1, ptr {is_named}')}, label {mapping}, label {several}")
    with f.within(mapping):
        results_object = w.call("ptr", "PyDict_New", "")
        w.require(f.let(f"icmp ne ptr {results_object}, null"), failed)
        set_item = w.field("PyDict_SetItem")
        with f.loop("0", outputs) as number:
            name = w.word(row(results, number), 0, "ptr")
            f.let(f"call i32 {set_item}(ptr {results_object}, ptr {name}, ptr {item(number)})")
        f.do(f"call void {decref}(ptr {result})")
        f.do(f"ret ptr {results_object}")
    with f.within(several):
        all_ = f.name("all")
        f.do(f"br i1 {f.let(f'icmp eq i64 {outputs}, 1')}, label {single}, label {all_}")
        f.start(all_)
        results_object = w.call("ptr", "PyTuple_New", f"i64 {outputs}")
        w.require(f.let(f"icmp ne ptr {results_object}, null"), failed)
        set_item = w.field("PyTuple_SetItem")
        with f.loop("0", outputs) as number:
            one = item(number)
            f.do(f"call void {incref}(ptr {one})")
            f.let(f"call i32 {set_item}(ptr {results_object}, i64 {number}, ptr {one})")
        f.do(f"call void {decref}(ptr {result})")
        f.do(f"ret ptr {results_object}")
    with f.within(single):
        one = item("0")
        f.do(f"call void {incref}(ptr {one})")
        f.do(f"call void {decref}(ptr {result})")
        f.do(f"ret ptr {one}")
    with f.within(failed):
        f.do(f"call void {decref}(ptr {result})")
        f.do("ret ptr null")
    with f.within(pass_on):
        f.do(f"ret ptr {result}")
    f.start(decline)
    f.do(f"call void {clear}()")
    f.do(f"call void {incref}(ptr {none})")
    f.do(f"ret ptr {none}")
    return w.function(SYMBOL)
