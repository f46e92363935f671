"""A schedule by hand is data: it reads back, gives the same loops and bits again, and an edit is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection
from corruptions import KINDS, corrupted

import offcut as oc
from offcut.core import index as ix
from offcut.core.expr import Load, Var, rewrite
from offcut.core.extents import number_at
from offcut.core.program import Store, walk
from offcut.core.traversal import map_body
from offcut.partition import LADDER
from offcut.schedule import (
    HandSchedule,
    Level,
    Split,
)
from offcut.schedule.apply import hand_proof, staging
from tests.agree import agree, computed, of_peer

n, m = oc.dim("n", max=64), oc.dim("m", max=64)
SIZES = (0, 1, 7, 8, 29)


def product() -> oc.Tensor:
    """``C = A B``, and then no less than 0."""
    A, B = oc.placeholder((n, 12), name="A"), oc.placeholder((12, 10), name="B")
    k = oc.reduce_axis(12, name="k")
    C = oc.compute((n, 10), lambda i, j: oc.sum(A[i, k] * B[k, j], axis=k), name="C")
    return oc.compute((n, 10), lambda i, j: oc.maximum(C[i, j], 0.0), name="D")


def chain() -> oc.Tensor:
    """Twice, then one more but at the border, then summed by row."""
    A = oc.placeholder((n, m), name="A")
    B = oc.compute((n, m), lambda i, j: A[i, j] * 2.0, name="B")
    D = oc.compute((n, m), lambda i, j: oc.where(i >= 1, B[i, j] + 1.0, 0.0), name="D")
    r = oc.reduce_axis(m, "r")
    return oc.compute((n,), lambda i: oc.sum(D[i, r], axis=r), name="E")


def relu(t: int = 8) -> Any:
    x = oc.placeholder((t,), name="x")
    return oc.decl_tensor_intrin(
        oc.compute((t,), lambda i: oc.maximum(x[i], 0.0), name="relu"),
        lambda inputs, outputs: oc.hardware_intrinsic(
            f"vrelu{t}", inputs[0].access_ptr("r"), outputs[0].access_ptr("w")
        ),
    )


def tiled(s: HandSchedule) -> None:
    io, jo, ii, ji = s["C"].tile("i", "j", 8, 8, tail="guard")
    s["C"].reorder(io, jo, "k", ii, ji).parallel(io).vectorize(ji).unroll(ii)


def cached(s: HandSchedule) -> None:
    CL = s.cache_write("C", "near")
    io, _ = s["C"].split("i", 8)
    AL = s.cache_read("A", "far", [CL])
    CL.compute_at("C", io)
    AL.compute_at(CL, CL.split("k", 7, "mask")[0])


def fused(s: HandSchedule) -> None:
    ij = s["D"].fuse("i", "j")
    s["D"].bind(s["D"].split(ij, 16, "mask")[0], "blockIdx.x")


def covered(s: HandSchedule) -> None:
    s["D"].tensorize(s["D"].split("j", 8)[1], relu())


def factored(s: HandSchedule) -> None:
    s["B"].compute_inline()
    EF = s["E"].rfactor(s["E"].split("r", 4)[1])
    EF.reorder("i", "ri", "ro").parallel("i")
    s["D"].compute_at(EF, "i")


def triangle() -> oc.Program:
    return oc.parse("""\
program triangle
size n in 0:40
input L: float32[n, n]
input x: float32[n]
output y: float32[n]
for i in 0:n
  y[i] = 0.0
  for j in 0:i + 1
    y[i] += L[i, j] * x[j]
""")


def turned(s: HandSchedule) -> None:
    s["y"].reorder("j", "i")


def update() -> oc.Program:
    return oc.parse("""\
program update
size n in 0:40
output C: int32[n]
for i in 0:n
  C[i] = 1
for i in 0:n
  C[i] += 2
""")


def second(s: HandSchedule) -> None:
    s["C_1"].vectorize(s["C_1"].split("i", 4, "balance")[1])


Given = oc.Tensor | oc.Program
EXAMPLES: dict[str, tuple[Callable[[], Given], Callable[[HandSchedule], None]]] = {
    "nothing": (product, lambda s: None),
    "loops in another order": (product, lambda s: s["C"].reorder("k", "i", "j") and None),
    "tiles": (product, tiled),
    "caches": (product, cached),
    "fused loops": (product, fused),
    "an instruction": (product, covered),
    "a sum in groups": (chain, factored),
    "a triangle by columns": (triangle, turned),
    "the second nest of a buffer": (update, second),
}


def example(name: str) -> tuple[Given, HandSchedule]:
    make, change = EXAMPLES[name]
    given = make()
    s = oc.create_schedule(given)
    change(s)
    return given, s


def arrays(kernel: oc.Kernel, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    shapes = (
        [number_at(e, {"n": size, "m": size + 3}) for e in one.shape]
        for one in kernel.signature.inputs
    )
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


@pytest.mark.every(9)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_schedule_by_hand_reads_back_is_done_again_and_runs_as_it_is_lowered(name: str) -> None:
    given, s = example(name)
    parsed = oc.Schedule.parse(str(s.schedule))
    assert (parsed, parsed.digest) == (s.schedule, s.schedule.digest)
    same = oc.create_schedule(given).apply(parsed)
    assert same.schedule == parsed
    assert str(same.lower()) == str(s.lower())
    if isinstance(given, oc.Tensor):  # in its own text, it has the same stages
        text = str(oc.compile(given, target="interpret").loops)
        assert str(oc.create_schedule(oc.parse(text)).apply(parsed).lower()) == str(s.lower())
    if name == "nothing":
        return
    lowered, kernel = oc.compile(s.lower()), oc.compile(given, schedule=s.schedule)
    assert kernel.loops == lowered.loops
    assert str(kernel.schedule).startswith(str(s.schedule))
    shown = oc.Schedule.parse(str(kernel.schedule))
    again = oc.compile(given, schedule=shown)
    assert (again.loops, again.schedule) == (kernel.loops, shown)
    plain = oc.compile(given, target="interpret")
    for size in SIZES:
        inputs = arrays(kernel, size)
        sizes = {} if inputs else {"n": size}
        found = np.asarray(kernel(*inputs, **sizes))
        assert found.tobytes() == np.asarray(lowered(*inputs, **sizes)).tobytes()
        agree(found, of_peer(plain(*inputs, **sizes)))


def test_what_the_target_decides_stands_behind_the_primitives() -> None:
    text = "schedule E\ninline B\ninline D\nbind * lane tree"
    kernel = oc.compile(chain(), schedule=oc.Schedule.parse(text))
    named = "schedule E\ninline B\ninline D\nbind E.r lane tree"
    assert str(kernel.schedule) == named
    again = oc.compile(chain(), schedule=oc.Schedule.parse(named))
    assert (again.loops, again.schedule) == (kernel.loops, kernel.schedule)
    nest = (
        "schedule E\ninline B\nsplit D.j mask 8 as j_tile j_in\norder D j_tile j_in\n"
        "cover D at j_in vectors\ncover E vectors"
    )
    kernel = oc.compile(chain(), schedule=oc.Schedule.parse(nest))
    assert str(kernel.schedule) == nest
    assert "mask" in kernel.source()
    a = np.random.default_rng(0).standard_normal((5, 11)).astype("float32")
    exact = computed(lambda a: np.where(np.arange(5) >= 1, (a * 2 + 1).sum(1), 0), a)
    agree(kernel(a), exact)


def test_at_one_loop_what_is_read_of_memory_is_copied_before_anything_is_computed() -> None:
    A, R = oc.placeholder((n, 12), name="A"), oc.placeholder((n, 12), name="R")
    B = oc.compute((n, 12), lambda i, j: A[i, j] * 2.0, name="B")
    D = oc.compute((n, 12), lambda i, j: B[i, j] + R[i, j], name="D")
    s = oc.create_schedule(D)
    RL, BL = (s.cache_read(what, "near", ["D"]) for what in ("R", "B"))
    for stage in (RL, BL, "B"):
        s[stage].compute_at("D", "i")
    stores = [stmt.buffer for stmt in walk(s.lower()) if isinstance(stmt, Store)]
    assert stores == ["RL", "B", "BL", "D"]


LINES = (
    "split C.i 8 as io ii",
    "split C.i mask 8 as io ii",
    "split C.i ladder(4, 2, 1) 4 as a b",
    "split C.i ladder of 8 4 1 as a b",
    "split C.j ladder 384 then ladder by ii 1..6: 64 32, 7..14: 32 as jg j jj",
    "at B C.i in near depth 2 inplace A",
    "stage value float32(A[i, k]) for C as AL(u = i, k)",
    "cover C at ii gemm8x8(i=ii, j=jj; C=CL)",
    "choose\n  option a costs 1e-09 * float64(n)\n    bind C.i thread\n  option b\n    order C j i",
)
OLD = {
    "split C i mask 8 as io ii": "split C.i mask 8 as io ii",
    "fuse C i j as i_j": "fuse C.i C.j as i_j",
    "reorder C k i j": "order C k i j",
    "unroll C ii": "bind C.ii unroll",
    "vectorize C ii": "bind C.ii lane",
    "parallel C io": "bind C.io thread",
    "serial C io": "bind C.io serial",
    "bind C io blockIdx.x": "bind C.io blockIdx.x",
    "compute_at B C i": "at B C.i",
    "compute_inline B": "inline B",
    "cache_read A shared for C D as AL": "stage read A for C D as AL in shared",
    "cache_write C acc as CL": "stage write C as CL in acc",
    "rfactor C ko as CF": "rfactor C.ko as CF",
    "tensorize C ii gemm8x8": "cover C at ii gemm8x8",
}


@pytest.mark.parametrize(("text", "line"), [*OLD.items(), *zip(LINES, LINES, strict=True)])
def test_a_line_is_printed_as_it_is_read_and_one_of_an_older_version_as_of_today(
    text: str, line: str
) -> None:
    parsed = oc.Schedule.parse(f"schedule C\n{text}")
    assert str(parsed) == f"schedule C\n{line}"
    assert oc.Schedule.parse(str(parsed)) == parsed


def test_heights_by_those_of_another_loop_are_read_as_what_they_are() -> None:
    (split,) = oc.Schedule.parse(f"schedule C\n{LINES[4]}").steps
    by_height = (((1, 6), 64, (64, 32)), ((7, 14), 32, (32,)))
    levels = (Level(384, LADDER), Level(0, LADDER, None, "ii", by_height))
    assert split == Split("C", "j", levels, ("jg", "j", "jj"))


def test_a_primitive_that_is_refused_is_not_noted() -> None:
    s = oc.create_schedule(product())
    s["C"].split("i", 8)
    for refused in (
        lambda: s["C"].tile("ii", "j", 4, 0),
        lambda: s.apply(oc.Schedule.parse("schedule D\nunroll C io\nunroll C i")),
    ):
        with pytest.raises(oc.PartitionError):
            refused()
        assert str(s.schedule) == "schedule D\nsplit C.i 8 as io ii"


LISTED = """\
schedule D
split C.i 8 as io ii
split C.j 4 as jo ji
order C io jo k ii ji
bind C.ji lane
stage read A for C as AL in far
at AL C.io
"""
EDITS = refusals(
    r"""
an axis that is not there
given 'order C io jo k ii ji', 'order C io jo z ii ji'
order: cannot take z as an axis
  at       line 4: order C io jo z ii ji
  because  C has no such loop
  help     loops of C: io, ii, jo, ji, k

a name that is taken
given '4 as jo ji', '4 as jo io'
split: cannot make io
  at       line 3: split C.j 4 as jo io
  because  something has that name

one name for two loops
given '4 as jo ji', '4 as ji ji'
split: cannot make ji
  at       line 3: split C.j 4 as ji ji
  because  something has that name

what is no name
given 'as AL', 'as A+1'
stage: cannot make A+1
  at       line 6: stage read A for C as A+1 in far
  because  a name is an ASCII identifier

an instruction that is not declared
given 'bind C.ji lane', 'cover C at ji nothing8x8'
cover: cannot run 'nothing8x8'
  at       line 5: cover C at ji nothing8x8
  because  it is neither a microkernel of the target nor a declared instruction
  help     decl_tensor_intrin(computation, lowering)

an instruction that computes something else
given 'bind C.ji lane', 'cover C at ji vrelu8'
cover: cannot run C from ji inwards by vrelu8
  at       line 5: cover C at ji vrelu8
  because  term: C[i, j] + A[i, k] * B[k, j] is not what it computes

a loop that is bound
given 'stage read A', 'bind C.ji unroll\nstage read A'
bind: cannot bind ji to unroll
  at       line 6: bind C.ji unroll
  because  line 5: bind C.ji lane has decided it
  help     one line for a loop

a loop that was bound before it was split
given 'stage read A', 'split C.ji 2 as jp jq\nbind C.jp serial\nstage read A'
bind: cannot bind jp to serial
  at       line 7: bind C.jp serial
  because  line 5: bind C.ji lane has decided it
  help     one line for a loop

an order that contradicts another one
given 'bind C.ji lane', 'order C ii io'
order: cannot reorder ii, io
  at       line 5: order C ii io
  because  line 4: order C io jo k ii ji has decided it
  help     one order of these loops

a stage in two places
given 'at AL C.io', 'at AL C.io\nat AL C.jo'
at: cannot compute AL in two places
  at       line 8: at AL C.jo
  because  line 7: at AL C.io has decided it

a primitive behind what the target decides
given 'bind C.ji lane', 'bind * lane'
schedule: cannot apply a decision here
  at       line 6: stage read A for C as AL in far
  because  what a target decides stands before it, about loops that are made first
  help     decisions by hand come first
  help     split C.i cut 8, behind separate""",
    globals(),
)


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_that_is_not_legal_is_refused_by_its_line(what: str) -> None:
    old, new, text = EDITS[what]
    relu()
    assert old in LISTED
    changed = oc.Schedule.parse(LISTED.replace(old, new))
    with rejection(f"PartitionError: {text}"):
        oc.compile(product(), schedule=changed)


TOGETHER = {
    "terms are repeated": (
        *("triangle", "unroll y i\nsplit y.j shift 4 as jo ji\nreorder y jo i ji"),
        "prove: the emitted program does not compute what the source does\n"
        "  at       line 3: split y.j shift 4 as jo ji\n  because  with n = ",
    ),
    "a sum runs side by side": (
        *("triangle", "unroll y i\nbind y.j thread"),
        "partition: cannot run loop j as @thread\n  at       line 3: bind y.j thread\n"
        "  because  with n = ",
    ),
    "terms in another order": (
        *("D", "split C.k 4 as ko ki\nreorder C ki i j ko"),
        "prove: the emitted program does not compute what the source does\n"
        "  at       line 3: order C ki i j ko\n",
    ),
    "terms in groups": (
        *("D", "split C.k 4 as ko ki\nrfactor C ko as CF"),
        "prove: cannot group the terms of a sum\n  at       line 3: rfactor C.ko as CF\n"
        "  because  reassociate=False: they are added in ascending order",
    ),
}


@pytest.mark.parametrize("what", TOGETHER)
def test_what_only_the_whole_program_shows_is_refused_by_its_line_too(what: str) -> None:
    name, lines, text = TOGETHER[what]
    schedule = oc.Schedule.parse(f"schedule {name}\n{lines}")
    given = product() if name == "D" else triangle()
    if name == "D":  # a sum keeps its order where that is asked, and there alone
        oc.compile(given, schedule=schedule)
    with pytest.raises(oc.PartitionError) as refused:
        oc.compile(given, schedule=schedule, reassociate=name != "D")
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize("op", ["split", "fuse"])
def test_a_loop_in_which_a_stage_is_computed_is_not_replaced(op: str) -> None:
    line = {"split": "split R.i 4 as io ii", "fuse": "fuse R.i R.j as f"}[op]
    c = product()
    d = oc.compute(c.shape, lambda i, j: c[i, j] + oc.tanh(c[i, j]), name="R")
    with rejection(
        f"PartitionError: {op}: cannot {op} i\n"
        f"  at       line 3: {line}\n"
        f"  because  D is computed in this loop, which the {op} replaces\n"
        f"  help     the {op} before the line that says where D is computed"
    ):
        oc.compile(d, schedule=oc.Schedule.parse(f"schedule R\nat D R.i\n{line}"))


def test_nests_are_for_what_is_still_a_computation() -> None:
    text = "schedule D\nsplit C i 8 as io ii\ncover C vectors"
    with rejection("""\
PartitionError: schedule: cannot cover C
  at       line 3: cover C vectors
  because  no nest that computes it is a sequence of whole arrays, each from those before
  help     cover C at i vectors, i the outermost of its loops that are a tile
  help     separate, split and bind, for loops as they stand"""):
        oc.compile(product(), schedule=oc.Schedule.parse(text))


def test_what_a_target_decides_is_not_applied_by_hand() -> None:
    with pytest.raises(oc.PartitionError) as refused:
        oc.create_schedule(product()).apply(oc.Schedule.parse("schedule C\nbind * lane"))
    assert (
        str(refused.value).splitlines()[0] == "schedule: cannot apply by hand what a target decides"
    )


def test_an_instruction_may_be_given_in_place_of_being_declared() -> None:
    given, s = example("an instruction")
    renamed = oc.Schedule.parse(str(s.schedule).replace("vrelu8", "other8"))
    with pytest.raises(oc.PartitionError, match="not a declared instruction"):
        oc.create_schedule(given).apply(renamed)
    other = replace(relu(), name="other8")
    again = oc.create_schedule(given).apply(renamed, [other])
    assert "@cover(other8; " in str(again.lower())


def test_a_line_that_is_no_primitive_shows_one() -> None:
    for line, shown in [
        ("order", "order C j i"),
        ("rfactor C.i", "rfactor C.ko as CF"),
        ("inline", "inline B"),
    ]:
        with rejection(f"""\
ParseError: parse: cannot read a schedule
  at       line 2: {line}
  because  it is not of this form
  help     {shown}"""):
            oc.Schedule.parse(f"schedule C\n{line}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_in_the_loops_that_primitives_make_is_refused(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, s = example("tiles")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype("float32") for shape in ((9, 12), (12, 10)))
    mutants = list(corrupted(s.lower(), kind))
    for broken in mutants[:: max(1, len(mutants) // 3)]:
        monkeypatch.setattr(hand_proof, "lower_with_tiles", lambda _, broken=broken: (broken, []))
        again = oc.create_schedule(given).apply(s.schedule)
        try:
            found = again.lower().run({"A": a, "B": b})
        except oc.PartitionError:
            continue
        np.testing.assert_array_equal(found, np.maximum(a @ b, 0))


def test_a_fault_in_a_stage_that_primitives_make_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = staging._copy

    def elsewhere(*given: Any) -> Any:
        made = right(*given)
        return map_body(made, lambda e: rewrite(e, shifted))

    def shifted(node: Any) -> Any:
        if isinstance(node, Load):
            return replace(node, index=(ix.sub(ix.sub(n_, 1), node.index[0]), *node.index[1:]))
        return None

    n_ = Var("n")
    monkeypatch.setattr(staging, "_copy", elsewhere)
    for change in (
        lambda s: s.cache_write("D", "near"),
        lambda s: s.cache_read("A", "far", ["C"]),
    ):
        s = oc.create_schedule(product())
        change(s)
        with pytest.raises(oc.PartitionError, match="does not compute what the source does"):
            s.lower()


@pytest.mark.parametrize(
    ("lo", "hi"), [("i", "n"), ("0", "i + 1"), ("i % 2", "n:2"), ("max(0, i - 2)", "min(n, i + 3)")]
)
def test_copies_whose_bounds_depend_on_another_loop_are_no_one_tile(lo: str, hi: str) -> None:
    copied = oc.parse(f"""\
program copied
size n in 0:97
input A: float32[n, n]
inout C: float32[n, n]
for i in 0:n
  for j in {lo}:{hi}
    C[i, j] = A[i, j]
""")
    s = oc.create_schedule(copied)
    s["C"].vectorize("j")
    a, c = np.arange(49, dtype="float32").reshape(7, 7), np.zeros((7, 7), "float32")
    np.testing.assert_array_equal(s.lower().run({"A": a, "C": c}), copied.run({"A": a, "C": c}))


COVERED = {
    "tiles of two heights": """\
split C.i balance 14 as i_tile ii
split C.j mask 32 as j_tile jj
order C i_tile j_tile ii jj k
bind C.i_tile thread
cover C at ii fma_float32_avx512""",
    "in a window of what reads it": """\
split D.i balance 14 as i_tile ii
split D.j mask 32 as j_tile jj
order D i_tile j_tile ii jj
at C D.j_tile
cover C at i fma_float32_avx512""",
    "a window of what it reads": """\
stage read W for C as W_near in near
split C.i ladder 14 as i_tile ii
split C.j mask 32 as j_tile jj
order C j_tile i_tile ii jj k
at W_near C.j_tile
cover C at ii fma_float32_avx512(i=ii, j=jj, p=k)""",
}


def covered(text: str) -> str:
    """The loops that a schedule makes for a machine that may be another than this one."""
    n, k = oc.dim("n", min=1, max=512), oc.reduce_axis(64, name="k")
    a, w = oc.placeholder((n, 64), name="A"), oc.placeholder((64, 96), name="W")
    total = oc.compute((n, 96), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="C")
    made = oc.compute((n, 96), lambda i, j: oc.maximum(total[i, j], 0.0), name="D")
    schedule = oc.Schedule.parse(f"schedule D\n{text}")
    assert oc.Schedule.parse(str(schedule)) == schedule
    there = oc.target("cpu", machine="zen4")
    return there.source(made, [a, w], options=there.options("compile", schedule=schedule))


@pytest.mark.every(3)
@pytest.mark.parametrize("what", COVERED)
def test_a_tile_by_hand_is_run_by_a_microkernel_of_the_machine(what: str) -> None:
    text = covered(COVERED[what])
    assert "@cover(fma_float32_avx512" in text
    loops = oc.parse(text)
    assert str(loops) == text.rstrip()
    rng = np.random.default_rng(0)
    w = rng.standard_normal((64, 96), dtype=np.float32)
    for n in (1, 13, 14, 15, 47):
        a = rng.standard_normal((n, 64), dtype=np.float32)
        agree(
            loops.run({"A": a, "W": w}, n=n),
            computed(lambda a, w: np.maximum(a @ w, 0), a, w),
        )


def test_a_microkernel_that_does_not_run_the_tile_is_refused_with_the_reason() -> None:
    text = COVERED["a window of what it reads"].replace("i=ii, j=jj, p=k", "i=jj, j=ii")
    with rejection("""\
PartitionError: compile: cannot cover a tile by fma_float32_avx512
  at       line 7: cover C at ii fma_float32_avx512(i=jj, j=ii)
  because  moves: A[i, k] does not move as A[i, p] with i=j, j=i
  help     without @cover(…) it runs as vectors"""):
        covered(text)


@pytest.mark.parametrize("stage", ["Y_product", "Y_share"])
def test_the_schedule_of_attention_with_one_cover_less_is_proved(stage: str) -> None:
    m = oc.dim("m", max=64)
    q, k, v = (
        oc.placeholder((1, length, 16), name=name)
        for name, length in (("Q", 5), ("K", m), ("V", m))
    )
    result, target = oc.ops.attention(q, k, v, name="Y"), oc.target("cpu", machine="avx2")
    text = str(oc.compile(result, inputs=[q, k, v], target=target).schedule)
    (line,) = (one for one in text.splitlines(True) if one.startswith(f"cover {stage} "))
    schedule = oc.Schedule.parse(text.replace(line, ""))
    kernel = oc.compile(result, inputs=[q, k, v], target=target, schedule=schedule)
    assert line not in str(kernel.schedule)
    assert stage in str(kernel.loops)
    again = oc.compile(result, inputs=[q, k, v], target=target, schedule=kernel.schedule)
    assert again.loops == kernel.loops
