"""The threads that kernels run on: one pool a process, made when the first kernel wants it.

`start` compiles the pool once and makes its functions known to the linker, so that the
object code of kernels, cached or not, names them and holds no address. Workers are made when a call
first needs them, and sleep between calls; they run on the processors that the process's first thread
may use at that time, whichever thread makes the call. One call has the pool at a time; a call that
finds it taken runs on its own thread.

The pool of threads as LLVM IR: what starts work on several threads and waits for it.

All state lies in one mapping that the system empties in a forked child: a child begins with no
workers and makes its own. A worker waits on a slot of its own, first by looking at it again and
again for so many cycles of the time stamp counter, then asleep in the kernel; so does whoever waits
for workers or at a barrier. Whoever sleeps has said so before, and whoever wakes looks there after it
has written, so no wake is lost and none is asked for in vain. With more threads than processors
nobody spins.

To wake a sleeping worker takes 14 to 50 µs. So a short job takes workers that sleep only where it
follows another soon, by the same counter: a stream of short jobs keeps them awake from its second or
third on, and one now and then runs on its caller alone, for nothing.

Offsets in the mapping, in bytes; words that different threads write lie in different cache lines::

    0    busy       1 while some thread of Python's has the pool
    4    workers    how many there are
    64   remaining  workers that have not finished the job, and at 68 whether its caller sleeps
    128  arrived    at the barrier
    192  phase      of the barrier, at 196 how many sleep there, at 200 how many it waits for
    256  spin       cycles, of this job, and at 264 when the last job ended
    320  slots      128 bytes each: ticket, sleeps, thread, threads, function, context, MXCSR
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache

import llvmlite.binding as llvm

from offcut.backends.cpu.machine import isa, jit
from offcut.backends.host import cache as objects
from offcut.backends.host.shared_library import FORGET, MOST, OPEN, open_pool
from offcut.core import process
from offcut.core.integers import whole
from offcut.costmodel import Threads
from offcut.errors import TargetError

STACK_BYTES = 8 << 20  # of a worker
SLOTS, SLOT_BYTES = 320, 128
STATE_BYTES = SLOTS + SLOT_BYTES * MOST

RUN, BARRIER = "offcut_pool_run", "offcut_pool_barrier"

DECLARATIONS = f"""
declare i32 @{RUN}(ptr, ptr, i32, i1)
declare void @{BARRIER}(ptr)
"""
"""What a module that uses the pool declares."""

_CALL = "call i64 (i64, ...) @syscall"
_SYSCALL = f"{_CALL}(i64 202"  # futex
_GETPID, _SETAFFINITY, _GETAFFINITY = 39, 203, 204
_AFFINITY_BYTES = 1024  # a bit for each processor
_WAIT, _WAKE = 128, 129  # private to the process


def text(threads: Threads) -> str:
    """LLVM IR of the pool: its run, its barrier and its workers."""
    return f"""
@state = internal global ptr null
@processors = internal global i32 1

declare i64 @syscall(i64, ...) nounwind
declare ptr @mmap(ptr, i64, i32, i32, i32, i64) nounwind
declare i32 @madvise(ptr, i64, i32) nounwind
declare i32 @pthread_create(ptr, ptr, ptr, ptr) nounwind
declare i32 @pthread_attr_init(ptr) nounwind
declare i32 @pthread_attr_destroy(ptr) nounwind
declare i32 @pthread_attr_setstacksize(ptr, i64) nounwind
declare i32 @pthread_attr_setdetachstate(ptr, i32) nounwind
declare i32 @pthread_sigmask(i32, ptr, ptr) nounwind
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)

; Maps the state. 0: done; 1: there is no memory; 2: done, but a forked child has to call `forget`.
define i32 @{OPEN}(i32 %processors) nounwind {{
entry:
  %at = call ptr @mmap(ptr null, i64 {STATE_BYTES}, i32 3, i32 34, i32 -1, i64 0)
  %none = icmp eq ptr %at, inttoptr (i64 -1 to ptr)
  br i1 %none, label %failed, label %mapped
mapped:
  store ptr %at, ptr @state
  store i32 %processors, ptr @processors
  %refused = call i32 @madvise(ptr %at, i64 {STATE_BYTES}, i32 18)
  %kept = icmp ne i32 %refused, 0
  %answer = select i1 %kept, i32 2, i32 0
  ret i32 %answer
failed:
  ret i32 1
}}

; Empties the state, as if there never had been a pool.
define void @{FORGET}() nounwind {{
  %state = load ptr, ptr @state
  call void @llvm.memset.p0.i64(ptr %state, i8 0, i64 {STATE_BYTES}, i1 false)
  ret void
}}

; Returns once the word is no longer `old`: spins a while, then sleeps.
define internal void @wait(ptr %word, i32 %old, ptr %sleeps) noinline nounwind {{
entry:
  %state = load ptr, ptr @state
  %spin.at = getelementptr i8, ptr %state, i64 256
  %limit32 = load atomic i32, ptr %spin.at monotonic, align 4
  %limit = zext i32 %limit32 to i64
  %start = call i64 @llvm.readcyclecounter()
  br label %look
look:
  %now = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %now, %old
  br i1 %same, label %pause, label %done
pause:
  call void @llvm.x86.sse2.pause()
  %clock = call i64 @llvm.readcyclecounter()
  %passed = sub i64 %clock, %start
  %soon = icmp ult i64 %passed, %limit
  br i1 %soon, label %look, label %announce
announce:
  %before = atomicrmw add ptr %sleeps, i32 1 seq_cst
  br label %check
check:
  %again = load atomic i32, ptr %word seq_cst, align 4
  %still = icmp eq i32 %again, %old
  br i1 %still, label %sleep, label %woken
sleep:
  %slept = {_SYSCALL}, ptr %word, i32 {_WAIT}, i32 %old, ptr null, ptr null, i32 0)
  br label %check
woken:
  %after = atomicrmw sub ptr %sleeps, i32 1 seq_cst
  br label %done
done:
  ret void
}}

; Wakes up to `count` of those that sleep on a word which has changed.
define internal void @wake(ptr %word, ptr %sleeps, i32 %count) nounwind {{
entry:
  %asleep = load atomic i32, ptr %sleeps seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %call, label %done
call:
  %woken = {_SYSCALL}, ptr %word, i32 {_WAKE}, i32 %count, ptr null, ptr null, i32 0)
  br label %done
done:
  ret void
}}

; Gives the thread the processors of the process's first thread: the one that made it may have few.
define internal void @settle() noinline nounwind {{
entry:
  %mask = alloca [{_AFFINITY_BYTES} x i8], align 8
  %process = {_CALL}(i64 {_GETPID})
  %bytes = {_CALL}(i64 {_GETAFFINITY}, i64 %process, i64 {_AFFINITY_BYTES}, ptr %mask)
  %known = icmp sgt i64 %bytes, 0
  br i1 %known, label %set, label %done
set:
  %answer = {_CALL}(i64 {_SETAFFINITY}, i64 0, i64 %bytes, ptr %mask)
  br label %done
done:
  ret void
}}

define internal ptr @worker(ptr %slot) nounwind {{
entry:
  call void @settle()
  %state = load ptr, ptr @state
  %remaining = getelementptr i8, ptr %state, i64 64
  %waits = getelementptr i8, ptr %state, i64 68
  %sleeps = getelementptr i8, ptr %slot, i64 4
  %thread.at = getelementptr i8, ptr %slot, i64 8
  %threads.at = getelementptr i8, ptr %slot, i64 12
  %function.at = getelementptr i8, ptr %slot, i64 16
  %context.at = getelementptr i8, ptr %slot, i64 24
  %control = getelementptr i8, ptr %slot, i64 32
  br label %next
next:
  %seen = phi i32 [ 0, %entry ], [ %ticket, %finish ], [ %ticket, %last ]
  call void @wait(ptr %slot, i32 %seen, ptr %sleeps)
  %ticket = load atomic i32, ptr %slot acquire, align 4
  %thread = load i32, ptr %thread.at
  %threads = load i32, ptr %threads.at
  %function = load ptr, ptr %function.at
  %context = load ptr, ptr %context.at
  call void @llvm.x86.sse.ldmxcsr(ptr %control)
  call void %function(ptr %context, i32 %thread, i32 %threads, ptr %state)
  br label %finish
finish:
  %before = atomicrmw sub ptr %remaining, i32 1 seq_cst
  %is.last = icmp eq i32 %before, 1
  br i1 %is.last, label %last, label %next
last:
  call void @wake(ptr %remaining, ptr %waits, i32 1)
  br label %next
}}

; Makes workers until there are `wanted`, and returns how many there are: fewer where none can be
; made. They are detached, and no signal is delivered to them.
define internal i32 @grow(ptr %state, i32 %wanted) noinline nounwind {{
entry:
  %attributes = alloca [16 x i64]
  %all = alloca [16 x i64]
  %mask = alloca [16 x i64]
  %made = alloca i64
  %workers.at = getelementptr i8, ptr %state, i64 4
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  %e1 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %mask)
  %e2 = call i32 @pthread_attr_init(ptr %attributes)
  %e3 = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 {STACK_BYTES})
  %e4 = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 1)
  br label %next
next:
  %workers = load i32, ptr %workers.at
  %few = icmp slt i32 %workers, %wanted
  br i1 %few, label %create, label %done
create:
  %number = zext i32 %workers to i64
  %offset = mul i64 %number, {SLOT_BYTES}
  %slots = getelementptr i8, ptr %state, i64 {SLOTS}
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %failed = call i32 @pthread_create(ptr %made, ptr %attributes, ptr @worker, ptr %slot)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %count, label %done
count:
  %more = add i32 %workers, 1
  store i32 %more, ptr %workers.at
  br label %next
done:
  %e5 = call i32 @pthread_attr_destroy(ptr %attributes)
  %e6 = call i32 @pthread_sigmask(i32 2, ptr %mask, ptr null)
  ret i32 %workers
}}

; Runs function(context, thread, threads, barrier) on up to `threads` threads, the caller being
; thread 0, and returns how many ran: 1 where another caller has the pool, where no thread can be
; made, and where the job is short and the workers sleep.
define i32 @{RUN}(ptr %function, ptr %context, i32 %threads, i1 %short) nounwind {{
entry:
  %control = alloca i32
  %state = load ptr, ptr @state
  %several = icmp sgt i32 %threads, 1
  br i1 %several, label %take, label %alone
take:
  %pair = cmpxchg ptr %state, i32 0, i32 1 acquire monotonic
  %taken = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %taken, label %taken.it, label %alone
taken.it:
  %bounded = call i32 @llvm.smin.i32(i32 %threads, i32 {MOST})
  %wanted = sub i32 %bounded, 1
  %workers.at = getelementptr i8, ptr %state, i64 4
  %have = load i32, ptr %workers.at
  %enough = icmp sge i32 %have, %wanted
  br i1 %enough, label %ready, label %grow
grow:
  %grown = call i32 @grow(ptr %state, i32 %wanted)
  br label %ready
ready:
  %workers = phi i32 [ %wanted, %taken.it ], [ %grown, %grow ]
  %lonely = icmp eq i32 %workers, 0
  br i1 %lonely, label %give.up, label %judge
judge:
  %ended.at = getelementptr i8, ptr %state, i64 264
  %sleeps.at = getelementptr i8, ptr %state, i64 {SLOTS + 4}
  %asleep32 = load atomic i32, ptr %sleeps.at monotonic, align 4
  %asleep = icmp ne i32 %asleep32, 0
  %ended = load i64, ptr %ended.at
  %clock = call i64 @llvm.readcyclecounter()
  %since = sub i64 %clock, %ended
  %long.ago = icmp ugt i64 %since, {threads.recent_cycles}
  %cold = and i1 %asleep, %long.ago
  %dear = and i1 %cold, %short
  br i1 %dear, label %by.itself, label %prepare
by.itself:
  call void %function(ptr %context, i32 0, i32 1, ptr null)
  %now = call i64 @llvm.readcyclecounter()
  store i64 %now, ptr %ended.at
  store atomic i32 0, ptr %state release, align 4
  ret i32 1
give.up:
  store atomic i32 0, ptr %state release, align 4
  br label %alone
prepare:
  %team = add i32 %workers, 1
  %remaining = getelementptr i8, ptr %state, i64 64
  %waits = getelementptr i8, ptr %state, i64 68
  %size = getelementptr i8, ptr %state, i64 200
  %spin = getelementptr i8, ptr %state, i64 256
  %slots = getelementptr i8, ptr %state, i64 {SLOTS}
  %processors = load i32, ptr @processors
  %crowded = icmp sgt i32 %team, %processors
  %limit = select i1 %crowded, i32 0, i32 {threads.spin_cycles}
  store atomic i32 %limit, ptr %spin monotonic, align 4
  store i32 %team, ptr %size
  store atomic i32 %workers, ptr %remaining monotonic, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %control)
  %word = load i32, ptr %control
  br label %start
start:
  %k = phi i32 [ 0, %prepare ], [ %k.next, %start ]
  %number = zext i32 %k to i64
  %offset = mul i64 %number, {SLOT_BYTES}
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %sleeps = getelementptr i8, ptr %slot, i64 4
  %thread.at = getelementptr i8, ptr %slot, i64 8
  %threads.at = getelementptr i8, ptr %slot, i64 12
  %function.at = getelementptr i8, ptr %slot, i64 16
  %context.at = getelementptr i8, ptr %slot, i64 24
  %control.at = getelementptr i8, ptr %slot, i64 32
  %k.next = add i32 %k, 1
  store i32 %k.next, ptr %thread.at
  store i32 %team, ptr %threads.at
  store ptr %function, ptr %function.at
  store ptr %context, ptr %context.at
  store i32 %word, ptr %control.at
  %ticket = load i32, ptr %slot
  %ticket.next = add i32 %ticket, 1
  store atomic i32 %ticket.next, ptr %slot seq_cst, align 4
  call void @wake(ptr %slot, ptr %sleeps, i32 1)
  %more = icmp slt i32 %k.next, %workers
  br i1 %more, label %start, label %own
own:
  call void %function(ptr %context, i32 0, i32 %team, ptr %state)
  br label %join
join:
  %left = load atomic i32, ptr %remaining acquire, align 4
  %finished = icmp eq i32 %left, 0
  br i1 %finished, label %release, label %wait
wait:
  call void @wait(ptr %remaining, i32 %left, ptr %waits)
  br label %join
release:
  %end = call i64 @llvm.readcyclecounter()
  store i64 %end, ptr %ended.at
  store atomic i32 0, ptr %state release, align 4
  ret i32 %team
alone:
  call void %function(ptr %context, i32 0, i32 1, ptr null)
  ret i32 1
}}

declare i32 @llvm.smin.i32(i32, i32)

; Returns once all threads of the job have called it; what they wrote before, all see after. The
; handle is null where one thread runs alone.
define void @{BARRIER}(ptr %state) nounwind {{
entry:
  %alone = icmp eq ptr %state, null
  br i1 %alone, label %done, label %arrive
arrive:
  %arrived = getelementptr i8, ptr %state, i64 128
  %phase = getelementptr i8, ptr %state, i64 192
  %sleeps = getelementptr i8, ptr %state, i64 196
  %size.at = getelementptr i8, ptr %state, i64 200
  %size = load i32, ptr %size.at
  %now = load atomic i32, ptr %phase acquire, align 4
  %before = atomicrmw add ptr %arrived, i32 1 seq_cst
  %mine = add i32 %before, 1
  %last = icmp eq i32 %mine, %size
  br i1 %last, label %open, label %wait
open:
  store atomic i32 0, ptr %arrived monotonic, align 4
  %next = add i32 %now, 1
  store atomic i32 %next, ptr %phase seq_cst, align 4
  call void @wake(ptr %phase, ptr %sleeps, i32 {MOST})
  br label %done
wait:
  call void @wait(ptr %phase, i32 %now, ptr %sleeps)
  br label %done
done:
  ret void
}}
"""


_starting = process.ForkSafeLock()


def resolve_threads(asked: int | None) -> int:
    """The most threads that a call may use.

    asked   1…1024; None: what the environment variable ``OFFCUT_THREADS`` says, else 1

    Raises TargetError for anything else. It is 1 where the pool cannot be made on this system.
    """
    text = os.environ.get("OFFCUT_THREADS", "") if asked is None else ""
    if text.isdecimal():
        asked = int(text)
    elif asked is None and not text:
        asked = 1
    count = whole(asked)
    if count is None or not 1 <= count <= MOST:
        variable = asked is None or bool(text)
        raise TargetError(
            "OFFCUT_THREADS" if variable else "compile",
            f"cannot take {text!r}" if variable else f"cannot run on threads={asked!r}",
            because=f"it is an int in 1…{MOST}: the most threads that one call may use",
            help=("OFFCUT_THREADS=2",) if variable else ("threads=2",),
        )
    return count if is_supported() else 1


def is_supported() -> bool:
    """Whether this system has what the pool is made of: Linux's futex on an x86-64 processor."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")


def start() -> bool:
    """Make the pool's functions known to the linker, once; whether kernels may name them."""
    with _starting:
        return _start()


@cache
def _start() -> bool:
    return is_supported() and _open(isa.host())


def _open(host: isa.Host) -> bool:
    program = text(host.machine.threads)
    name = objects.key("pool", program, host.triple, host.feature_string)
    code = objects.get_or_build(name, lambda: jit.object_code(program, host, passes=False))
    loaded = jit.load([code], host)
    if not open_pool(loaded):
        return False
    for symbol in (RUN, BARRIER):
        llvm.add_symbol(symbol, loaded.address(symbol))
    return True
