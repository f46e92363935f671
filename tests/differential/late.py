"""Calls that take all the threads they may, one of which is late: what needs another's work does not find it by chance."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from tests.facade import hooked, loaded, pool_starts, pool_symbols, put

CYCLES = 50_000  # that a thread is late: 20 µs at 2.5 GHz, more than a small case takes
MOST_LOOKS = 1 << 20  # for the others to begin

_TEXT = f"""
@calls = internal global i32 0
@begun = internal global i32 0
@passed = internal global i32 0

declare i32 @punctual_run(ptr, ptr, i32, i1)
declare void @punctual_barrier(ptr)
declare i64 @llvm.readcyclecounter()

define internal void @pause() noinline nounwind {{
entry:
  %start = call i64 @llvm.readcyclecounter()
  br label %look
look:
  %now = call i64 @llvm.readcyclecounter()
  %took = sub i64 %now, %start
  %soon = icmp ult i64 %took, {CYCLES}
  br i1 %soon, label %look, label %done
done:
  ret void
}}

; Another thread is late with every call: it begins some time after all others did.
define i32 @late_run(ptr %function, ptr %context, i32 %threads, i1 %short) nounwind {{
  %call = atomicrmw add ptr @calls, i32 1 seq_cst
  store atomic i32 0, ptr @begun seq_cst, align 4
  %given = alloca {{ ptr, ptr, i32 }}
  store ptr %function, ptr %given
  %at = getelementptr {{ ptr, ptr, i32 }}, ptr %given, i32 0, i32 1
  store ptr %context, ptr %at
  %which = getelementptr {{ ptr, ptr, i32 }}, ptr %given, i32 0, i32 2
  store i32 %call, ptr %which
  %ran = call i32 @punctual_run(ptr @late_body, ptr %given, i32 %threads, i1 false)
  ret i32 %ran
}}

define internal void @late_body(ptr %given, i32 %thread, i32 %threads, ptr %barrier) nounwind {{
entry:
  %function = load ptr, ptr %given
  %at = getelementptr {{ ptr, ptr, i32 }}, ptr %given, i32 0, i32 1
  %context = load ptr, ptr %at
  %which = getelementptr {{ ptr, ptr, i32 }}, ptr %given, i32 0, i32 2
  %call = load i32, ptr %which
  %turn = urem i32 %call, %threads
  %others = sub i32 %threads, 1
  %late = icmp eq i32 %turn, %thread
  br i1 %late, label %wait, label %first
first:
  %before = atomicrmw add ptr @begun, i32 1 seq_cst
  br label %run
wait:
  %looks = phi i32 [ 0, %entry ], [ %more, %wait ]
  %more = add i32 %looks, 1
  %begun = load atomic i32, ptr @begun seq_cst, align 4
  %missing = icmp ult i32 %begun, %others
  %patient = icmp ult i32 %looks, {MOST_LOOKS}
  %again = and i1 %missing, %patient
  br i1 %again, label %wait, label %pause
pause:
  call void @pause()
  br label %run
run:
  call void %function(ptr %context, i32 %thread, i32 %threads, ptr %barrier)
  ret void
}}

; Every second thread that passes a barrier goes on late.
define void @late_barrier(ptr %barrier) nounwind {{
entry:
  call void @punctual_barrier(ptr %barrier)
  %passed = atomicrmw add ptr @passed, i32 1 seq_cst
  %second = trunc i32 %passed to i1
  br i1 %second, label %late, label %done
late:
  call void @pause()
  br label %done
done:
  ret void
}}
"""


@contextmanager
def late() -> Iterator[None]:
    """Kernels that are compiled inside run so; none of them is kept."""
    if not pool_starts():
        yield
        return
    own, others = _addresses()
    cache_folder = os.environ.get("OFFCUT_CACHE")
    try:
        os.environ["OFFCUT_CACHE"] = "off"
        _linked(others)
        put("own machine", _eager)
        yield
    finally:
        _linked(own)
        put("own machine", _own_machine)
        if cache_folder is None:
            del os.environ["OFFCUT_CACHE"]
        else:
            os.environ["OFFCUT_CACHE"] = cache_folder


_own_machine = hooked("own machine")


def _eager(architecture: str, features: frozenset[str], named: str = "") -> Any:
    """This machine, as one on which threads take the smallest call."""
    machine = _own_machine(architecture, features, named)
    return replace(machine, threads=replace(machine.threads, grain_seconds=1e-15))


def _linked(addresses: tuple[int, int]) -> None:
    for symbol, address in zip(pool_symbols(), addresses, strict=True):
        llvm.add_symbol(symbol, address)


@cache
def _addresses() -> tuple[tuple[int, int], tuple[int, int]]:
    """Of the pool's functions, and of those that take their place."""
    run, barrier = (llvm.address_of_symbol(symbol) for symbol in pool_symbols())
    code = loaded(_TEXT, {"punctual_run": run, "punctual_barrier": barrier})
    _KEPT.append(code)
    return (run, barrier), (code.address("late_run"), code.address("late_barrier"))


_KEPT: list[Any] = []  # kernels call it for as long as the process lives
