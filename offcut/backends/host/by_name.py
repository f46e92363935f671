"""Builtin functions that take arrays in order or a dict of them, and call one that takes them in order (`by_name_ir`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from offcut.backends.host.builtin_function import (
    builtin_callable,
    field_words,
    layout_holds,
    no_results,
)

SYMBOL = "offcut_by_name"
FIELDS = (
    *("call", "none", "dict", "tuple", "inputs", "outputs", "is_mapping"),
    *("PyObject_Vectorcall", "Py_IncRef", "Py_DecRef", "PyErr_Clear"),
    *("PyDict_Size", "PyDict_GetItem", "PyDict_New", "PyDict_SetItem"),
    *("PyTuple_GetItem", "PyTuple_New", "PyTuple_SetItem"),
)
"""The first words of the table. ``inputs``, ``outputs``: how many; ``is_mapping``: whether arrays in order give results by name.

A pair follows for each argument of the callable, of its name and its place in a call with arrays in order; then one for each result, of its
name and its place among those of the callable. Saved models hold code that reads it so.
"""
PAIR_WORDS = 2


def call_by_name(
    name: str,
    address: int,
    call: Callable[..., Any],
    inputs: Mapping[str, int],
    outputs: Mapping[str, int],
    *,
    is_mapping: bool = False,
    owner: object = None,
) -> Callable[..., Any]:
    """Return a function of arrays in order, or of a dict of them by name, which returns results in order, or by name.

    It returns None for any other call, with nothing done, and where `call` does.

    address  of the function of `by_name_ir.by_name_ir`; 0: there is none, and all calls are others
    call     gives an array, or a tuple of several
    inputs   in the order of a call: the place of each among the arguments of `call`; outputs: likewise, of its results
    is_mapping  whether arrays in order give results by name
    owner    keeps the code
    """
    if not address or sorted(inputs.values()) != [*range(len(inputs))] or not layout_holds():
        return no_results
    objects = {"call": id(call), "none": id(None), "dict": id(dict), "tuple": id(tuple)}
    counts = {"inputs": len(inputs), "outputs": len(outputs), "is_mapping": int(is_mapping)}
    words = field_words(FIELDS, {**objects, **counts})
    names = [*inputs]
    for at in sorted(range(len(names)), key=lambda at: inputs[names[at]]):
        words += (id(names[at]), at)
    for result, place in outputs.items():
        words += (id(result), place)
    owners = (call, names, [*outputs], owner)
    return builtin_callable(name, names, address, words, owners)
