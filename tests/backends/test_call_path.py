"""Calls of a compiled kernel: the generated fast entry, the complete slow path, and that they agree."""

import gc
import itertools
import sys
import threading
from dataclasses import dataclass, field, replace

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

import offcut as oc
from offcut.backends.abi import AffineFact, Argument
from offcut.backends.host import arrays, builtin_function, fast_entry
from offcut.backends.host.binding import bind
from offcut.backends.host.call import Native, make_callable
from offcut.backends.host.scratch import SCRATCH_OFFSET
from offcut.core import index as ix
from offcut.core.expr import Expr, Var
from offcut.errors import CallError, InternalError
from offcut.ir import Size
from tests.facade import Signature, SlowPath

SIZES = [0, 1, 7, 8, 9, 24, 29]


def extent(const: int, terms: tuple[tuple[str, int], ...] = (), by: int = 1) -> Expr:
    """``(const + sum(factor * size)) // by``"""
    return ix.floordiv(ix.add(const, *(ix.mul(factor, Var(name)) for name, factor in terms)), by)


N, M = extent(0, (("n", 1),)), extent(0, (("m", 1),))
FACTS = (Size("n", 0, 1000), Size("m", 0, 1000))

# Two loops over n rows and m columns, strides of the rows at run time, of the columns 1.
# pointers: x, b, result, constant; `value` computes %v of type T from %i, %j and these.
LOOPS = """
define i32 @offcut_entry(ptr %pointers, ptr %sizes, ptr %strides, ptr %workspace) {
entry:
  %x = load ptr, ptr %pointers
  %b.at = getelementptr ptr, ptr %pointers, i64 1
  %b = load ptr, ptr %b.at
  %y.at = getelementptr ptr, ptr %pointers, i64 RESULT
  %y = load ptr, ptr %y.at
  %n = load i64, ptr %sizes
  %m.at = getelementptr i64, ptr %sizes, i64 1
  %m = load i64, ptr %m.at
  %xs = load i64, ptr %strides
  %ys.at = getelementptr i64, ptr %strides, i64 YSTRIDE
  %ys = load i64, ptr %ys.at
  %bad.n = icmp eq i64 %n, 13
  %ws = ptrtoint ptr %workspace to i64
  %ws.low = and i64 %ws, 63
  %ws.bad = icmp ne i64 %ws.low, 0
  %bad = or i1 %bad.n, %ws.bad
  br i1 %bad, label %fail, label %rows
fail:
  ret i32 7
rows:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row.end ]
  %i.more = icmp slt i64 %i, %n
  br i1 %i.more, label %columns, label %end
columns:
  %j = phi i64 [ 0, %rows ], [ %j.next, %body ]
  %j.more = icmp slt i64 %j, %m
  br i1 %j.more, label %body, label %row.end
body:
  %x.row = mul i64 %i, %xs
  %x.index = add i64 %x.row, %j
  %x.at = getelementptr T, ptr %x, i64 %x.index
  %xv = load T, ptr %x.at
VALUE
  %y.row = mul i64 %i, %ys
  %y.index = add i64 %y.row, %j
  %y.to = getelementptr T, ptr %y, i64 %y.index
  store T %v, ptr %y.to
  %j.next = add i64 %j, 1
  br label %columns
row.end:
  %i.next = add i64 %i, 1
  br label %rows
end:
  ret i32 0
}
define i64 @offcut_workspace(ptr %sizes) {
  %m.at = getelementptr i64, ptr %sizes, i64 1
  %m = load i64, ptr %m.at
  %bytes = mul i64 %m, WORKSPACE
  ret i64 %bytes
}
"""
ADD_ROW = """
  %b.to = getelementptr float, ptr %b, i64 %j
  %bv = load float, ptr %b.to
  %v = fadd float %xv, %bv
"""
# x[i, j] + w[2*i + 1] + constant[i], the sum passing through the workspace.
ADD_ODD = """
  %i.twice = shl i64 %i, 1
  %i.odd = add i64 %i.twice, 1
  %b.to = getelementptr float, ptr %b, i64 %i.odd
  %bv = load float, ptr %b.to
  %c.at = getelementptr ptr, ptr %pointers, i64 3
  %c = load ptr, ptr %c.at
  %c.to = getelementptr float, ptr %c, i64 %i
  %cv = load float, ptr %c.to
  %part = fadd float %xv, %bv
  %w.to = getelementptr float, ptr %workspace, i64 %j
  store float %part, ptr %w.to
  %kept = load float, ptr %w.to
  %v = fadd float %kept, %cv
"""
COPY = "  %v = or T %xv, 0\n"

# Waits, for a bounded time, until x[0, 0] is not zero; the result is what it saw last.
WAIT = """
define i32 @offcut_entry(ptr %pointers, ptr %sizes, ptr %strides, ptr %workspace) {
entry:
  %x = load ptr, ptr %pointers
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %look ]
  %seen = load volatile i32, ptr %x
  %next = add i64 %k, 1
  %still = icmp eq i32 %seen, 0
  %patient = icmp slt i64 %next, 4000000000
  %on = and i1 %still, %patient
  br i1 %on, label %look, label %end
end:
  %y.at = getelementptr ptr, ptr %pointers, i64 1
  %y = load ptr, ptr %y.at
  store i32 %seen, ptr %y
  ret i32 0
}
define i64 @offcut_workspace(ptr %sizes) {
  ret i64 0
}
define i64 @offcut_work(ptr %sizes) {
  ret i64 1000000000
}
"""


def loops(value: str, *, inputs: int = 2, kind: str = "float", workspace: int = 0) -> str:
    text = LOOPS.replace("VALUE", value).replace("RESULT", str(inputs))
    text = text.replace("YSTRIDE", str(inputs + 1)).replace("WORKSPACE", str(workspace))
    return text.replace(" T ", f" {kind} ").replace(" T,", f" {kind},")


@dataclass(frozen=True)
class Compiled:
    """One kernel as users call it, and the same by the slow path alone."""

    fast: object
    slow: SlowPath
    fast_address: int = 0
    engine: object = field(default=None, repr=False)


def compiled(
    text: str, signature: Signature, constants: tuple[np.ndarray, ...] = (), work: bool = False
) -> Compiled:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    extra = fast_entry.fast_entry_ir(signature, constants=len(constants), work=work)
    module = llvm.parse_assembly(text + extra)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    names = ("offcut_entry", "offcut_workspace", "offcut_fastcall")
    main, workspace, fastcall = (engine.get_function_address(name) for name in names)
    held = [(array.__array_interface__["data"][0], array) for array in constants]
    fast = make_callable(signature, main, workspace, fastcall, held, engine)
    slow = make_callable(signature, main, workspace, None, held, engine)
    assert isinstance(slow, SlowPath)
    return Compiled(fast, slow, fastcall, engine)


# How far in a page the workspace is from the result.
APART_FROM_RESULT = """
  %y.int = ptrtoint ptr %y to i64
  %apart = sub i64 %ws, %y.int
  %low = and i64 %apart, 4095
  %v = uitofp i64 %low to float
"""

ADD = Signature(
    "add",
    (Argument("x", "float32", (N, M)), Argument("b", "float32", (M,))),
    (Argument("y", "float32", (N, M)),),
    FACTS,
)
ODD = Signature(
    "odd",
    (Argument("x", "float32", (N, M)), Argument("w", "float32", (extent(1, (("n", 2),)),))),
    (Argument("y", "float32", (N, M)),),
    FACTS,
)
CONSTANT = np.arange(1000, dtype=np.float32) / 8


@pytest.fixture(scope="module")
def add() -> Compiled:
    return compiled(loops(ADD_ROW), ADD)


@pytest.fixture(scope="module")
def odd() -> Compiled:
    return compiled(loops(ADD_ODD, workspace=4), ODD, (CONSTANT,))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


def test_scratch_lies_apart_from_the_result_in_a_page_by_either_path() -> None:
    made = compiled(loops(APART_FROM_RESULT, workspace=4), ADD)
    x, b, held = random(8, 9), random(9), np.empty(8 * 9 + 64, np.float32)
    for call in (made.fast, made.slow):
        for first in range(0, 64, 7):
            y = held[first : first + 72].reshape(8, 9)
            call(x, b, out=y)
            assert ((y >= SCRATCH_OFFSET) & (y < SCRATCH_OFFSET + 64)).all()


def test_plain_numpy_calls_take_the_fast_path_and_are_right(add, slow_calls):
    for n, m in itertools.product(SIZES, SIZES):
        x, b = random(n, m), random(m)
        poisoned = np.full((n + 2, m + 3), np.nan, np.float32)
        out = poisoned[1 : n + 1, :m]
        slow_calls.clear()
        result = add.fast(x, b)
        assert add.fast(x, b, out=out) is out
        assert slow_calls == []
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, x + b)
        np.testing.assert_array_equal(out, x + b)
        assert np.isnan(poisoned).sum() == poisoned.size - n * m
        np.testing.assert_array_equal(add.slow(x, b), result)


def test_sizes_inside_formulas_constants_and_the_workspace_work_both_ways(odd, slow_calls):
    for n in SIZES:
        x, w = random(n, 5), random(2 * n + 1)
        expected = x + w[1::2, None] + CONSTANT[:n, None]
        slow_calls.clear()
        np.testing.assert_array_equal(odd.fast(x, w), expected)
        assert slow_calls == []
        np.testing.assert_array_equal(odd.slow(x, w), expected)


def misaligned(array: np.ndarray) -> np.ndarray:
    raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
    copy = raw.view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert not copy.flags.aligned
    return copy


def fields(array: np.ndarray) -> np.ndarray:
    """The array with rows 4*m + 1 bytes apart."""
    packed = np.zeros(array.shape[0], [("row", array.dtype, array.shape[1:]), ("pad", "u1")])
    packed["row"] = array
    return packed["row"]


LAYOUTS = {
    "columns of a wider array": (lambda x: np.pad(x, ((0, 0), (2, 3)))[:, 2:-3], True),
    "every other row": (lambda x: np.repeat(x, 2, axis=0)[::2], True),
    "one row, repeated": (lambda x: np.broadcast_to(x[:1], x.shape), True),
    "rows backwards": (lambda x: x[::-1].copy()[::-1], False),
    "columns backwards": (lambda x: x[:, ::-1].copy()[:, ::-1], False),
    "every other column": (lambda x: np.repeat(x, 2, axis=1)[:, ::2], False),
    "one column, repeated": (lambda x: np.broadcast_to(x[:, :1], x.shape), False),
    "Fortran order": (np.asfortranarray, False),
    "swapped bytes": (lambda x: x.astype(x.dtype.newbyteorder()), False),
    "misaligned": (misaligned, False),
    "a field of a packed structure": (fields, False),
    "a subclass": (lambda x: x.view(np.matrix), False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_of_an_input_is_read_right(add, slow_calls, layout):
    arrange, fast = LAYOUTS[layout]
    x, b = arrange(random(6, 5)), random(5)
    expected = np.asarray(x, np.float32) + b

    np.testing.assert_array_equal(add.fast(x, b), expected)
    assert bool(slow_calls) is not fast
    np.testing.assert_array_equal(add.slow(x, b), expected)


@pytest.mark.parametrize("layout", [each for each in LAYOUTS if "repeated" not in each])
def test_any_layout_of_out_is_written_right(add, slow_calls, layout):
    arrange, fast = LAYOUTS[layout]
    x, b, out = random(6, 5), random(5), arrange(np.full((6, 5), np.nan, np.float32))

    assert add.fast(x, b, out=out) is out
    np.testing.assert_array_equal(out, x + b)
    assert bool(slow_calls) is not fast


def test_a_copy_is_noted_with_its_reason(add, monkeypatch):
    notes = []
    monkeypatch.setattr(
        arrays.debug, "note", lambda level, text, logger: notes.append((level, text, logger))
    )

    add.fast(random(3, 8)[:, ::2], random(4), out=np.empty((4, 3), np.float32).T)

    assert notes == [
        (2, f"add: {text} a contiguous temporary", "call")
        for text in (
            "x (shape (3, 4), strides (32, 8) bytes) is copied to",
            "out (shape (3, 4), strides (4, 12) bytes) is computed in",
        )
    ]


def test_out_may_lie_between_the_elements_of_an_input(add, slow_calls):
    both, b = random(6, 16), random(8)
    expected = both[:, :8] + b

    add.fast(both[:, :8], b, out=both[:, 8:])

    np.testing.assert_array_equal(both[:, 8:], expected)
    assert len(slow_calls) == 1


def test_a_size_may_be_repeated_by_keyword_by_the_slow_path(add, slow_calls):
    x, b = random(3, 4), random(4)
    np.testing.assert_array_equal(add.fast(x, b, n=3, m=np.int64(4)), x + b)
    assert len(slow_calls) == 1
    np.testing.assert_array_equal(add.fast(x, b, out=None), x + b)


# n from x, m from w; every kind of check that the fast entry generates.
CHECKED = Signature(
    "checked",
    (
        Argument("x", "float32", (N, extent(0, (("m", 3),)))),
        Argument("w", "float32", (extent(1, (("n", 1), ("m", -1))), extent(-1, (("n", 1),), 2))),
    ),
    (Argument("y", "float32", (N, M)),),
    (Size("n", 2, 9), Size("m", 0, 4, 2)),
    (
        AffineFact(">=", 1, (("n", 1), ("m", -2)), "2*m <= n + 1"),
        AffineFact("mod", 0, (("n", 1), ("m", 1)), "(n + m) % 2 == 0", 2),
        AffineFact("==", 0, (), "0 == 0"),
    ),
)


def test_the_fast_path_accepts_exactly_what_the_slow_path_accepts(slow_calls):
    text = loops("  %v = fadd float %xv, 0.0\n")
    kernel = compiled(text, CHECKED)
    accepted = 0
    for n, m3, a, c in itertools.product(range(11), range(14), range(8), range(5)):
        x, w = np.zeros((n, m3), np.float32), np.zeros((a, c), np.float32)
        try:
            sizes = bind(CHECKED, (x, w), {}).sizes
        except CallError:
            with pytest.raises(CallError):
                kernel.fast(x, w)
            continue
        assert sizes == {"n": n, "m": m3 // 3}
        before = len(slow_calls)
        assert kernel.fast(x, w).shape == (n, m3 // 3)
        assert len(slow_calls) == before
        accepted += 1
    assert accepted == sum(
        (n - m + 1 < 8) and (n + m) % 2 == 0 and 2 * m <= n + 1
        for n in range(2, 10)
        for m in (0, 2, 4)
    )


def test_a_refused_call_writes_nothing_and_says_the_same_by_both_paths(add):
    x, b, out = random(3, 4), random(4), np.full((3, 4), np.nan, np.float32)
    shared = np.lib.stride_tricks.as_strided(out, (3, 4), (8, 4))
    frozen = out.copy()
    frozen.flags.writeable = False
    bad = [
        ((x,), {}),
        ((x, b, b), {}),
        ((x, b.astype(np.float64)), {}),
        ((x[0], b), {}),
        ((x, b[:3]), {}),
        ((np.zeros((1001, 4), np.float32), b), {}),
        ((x, b), {"k": 3}),
        ((x, b), {"out": out, "k": 3}),
        ((x, b), {"out": out[:2]}),
        ((x, b), {"out": x}),
        ((x, b), {"out": shared}),
        ((x, b), {"out": frozen}),
        ((x, b), {"out": 3}),
        ((None, b), {"out": out}),
        ((x, [1.0] * 4), {"out": out}),
    ]
    for args, kwargs in bad:
        with pytest.raises(CallError) as fast:
            add.fast(*args, **kwargs)
        with pytest.raises(CallError) as slow:
            add.slow(*args, **kwargs)
        assert str(fast.value) == str(slow.value)
    assert np.isnan(out).all()


def test_a_failure_of_the_compiled_code_is_an_internal_error(add, slow_calls):
    with pytest.raises(InternalError, match="add: the compiled code returned 7"):
        add.fast(random(13, 4), random(4))
    assert len(slow_calls) == 1


def test_calls_leave_no_references_behind(add, odd):
    x, b, w = random(3, 4), random(4), random(7)
    out, swapped, bad = np.empty_like(x), x.astype(">f4"), random(13, 4)
    watched = [x, b, w, out, swapped, bad, x.dtype, None, True, add.slow, "out"]

    def calls() -> None:
        for _ in range(2_000):
            add.fast(x, b)
            add.fast(x, b, out=out)
            odd.fast(x, w)
        for _ in range(200):
            add.fast(swapped, b)
            for args, kwargs in (((x, w), {}), ((bad, b), {}), ((x, b), {"out": x})):
                with pytest.raises((CallError, InternalError)):
                    add.fast(*args, **kwargs)

    add.fast(x, b)
    gc.collect()
    before = [sys.getrefcount(each) for each in watched]
    blocks = sys.getallocatedblocks()
    calls()
    gc.collect()
    after = [sys.getrefcount(each) for each in watched]
    assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < 100
    assert abs(sys.getallocatedblocks() - blocks) < 2_000


def test_other_threads_run_during_a_long_kernel(slow_calls):
    flag = Argument("x", "int32", (extent(1),))
    kernel = compiled(WAIT, Signature("wait", (flag,), (replace(flag, name="y"),), ()), work=True)
    x, seen = np.zeros(1, np.int32), []
    thread = threading.Thread(target=lambda: seen.append(kernel.fast(x)))
    thread.start()
    x[0] = 42
    thread.join()
    assert seen[0][0] == 42
    assert slow_calls == []


def test_the_callable_serves_as_a_class_attribute_and_outlives_all_else():
    kernel = compiled(loops(ADD_ROW), ADD)
    instance = type("Kernel", (), {"__call__": kernel.fast})()
    del kernel
    gc.collect()
    x, b = random(3, 4), random(4)
    np.testing.assert_array_equal(instance(x, b), x + b)
    assert instance.__call__.__module__ == "offcut"
    assert instance.__call__.__text_signature__ == "(x, b, *, out=None)"


def test_where_the_memory_layout_is_unknown_the_slow_path_serves(add, monkeypatch, slow_calls):
    monkeypatch.setattr(builtin_function, "layout_holds", lambda: False)
    native = add.slow.run
    assert isinstance(native, Native)
    kernel = make_callable(ADD, native.entry, native.workspace, add.fast_address)
    assert isinstance(kernel, SlowPath)
    x, b = random(3, 4), random(4)
    np.testing.assert_array_equal(kernel(x, b), x + b)


def test_the_layouts_that_generated_code_relies_on_hold_here():
    assert builtin_function.layout_holds()


def test_the_generated_text_refers_to_nothing_outside_its_module():
    text = fast_entry.fast_entry_ir(ODD, constants=1)
    assert text == fast_entry.fast_entry_ir(ODD, constants=1)
    assert "declare" not in text
    called = {word.partition("(")[0] for word in text.split() if word.startswith("@")}
    assert called == {"@offcut_array", "@offcut_ignore", "@offcut_ignore)", "@offcut_fastcall"} | {
        "@offcut_allocate",
        "@offcut_entry",
        "@offcut_workspace",
    }


class Boxed:
    """An array package of the smallest kind: DLPack out, `from_dlpack` in, no numpy interface."""

    def __init__(self, array: np.ndarray, versioned: bool = True) -> None:
        self.array, self.versioned = array, versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **kwargs: object) -> object:
        if not self.versioned and kwargs:
            raise TypeError("no keywords")
        return self.array.__dlpack__(**kwargs)

    @classmethod
    def __array_namespace__(cls) -> type:
        return cls

    @classmethod
    def from_dlpack(cls, array: np.ndarray) -> "Boxed":
        return cls(array)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("n", [0, 1, 8])
def test_any_dlpack_array_works_and_the_result_is_of_its_kind(add, n, versioned):
    x, b = random(n, 4), random(4)
    result = add.fast(Boxed(x, versioned), b)
    assert type(result) is Boxed
    np.testing.assert_array_equal(result.array, x + b)

    out = Boxed(np.full((n, 4), np.nan, np.float32), versioned)
    assert add.fast(x, b, out=out) is out
    np.testing.assert_array_equal(out.array, x + b)
    strided = Boxed(np.repeat(x, 2, axis=1)[:, ::2], versioned)
    np.testing.assert_array_equal(add.fast(strided, b).array, x + b)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed: its tensors are not tried")


def test_torch_tensors_take_the_fast_path_from_the_second_call_on(torch, add, slow_calls):
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch has no DLPack C exchange interface")
    x, b = torch.randn(6, 4), torch.randn(4)
    add.fast(x, b)
    slow_calls.clear()

    result, out = add.fast(x, b), torch.full((6, 4), torch.nan)
    assert type(result) is torch.Tensor
    assert torch.equal(result, x + b)
    assert add.fast(x, b, out=out) is out
    assert torch.equal(out, x + b)
    assert torch.equal(add.fast(x[::2], b), x[::2] + b)
    np.testing.assert_array_equal(add.fast(x.numpy(), b), (x + b).numpy())
    assert add.fast(x[:0], b).shape == (0, 4)
    assert slow_calls == []


def test_torch_tensors_of_any_stride_are_read_and_written_right(torch, add):
    x, b = torch.randn(4, 6), torch.randn(8)
    for kernel in (add.fast, add.slow):
        assert torch.equal(kernel(x.T, b[::2]), x.T + b[::2])
        out = torch.full((4, 6), torch.nan)
        assert kernel(x.T, b[::2], out=out.T).data_ptr() == out.data_ptr()
        assert torch.equal(out.T, x.T + b[::2])


def test_torch_tensors_that_mean_more_than_their_memory_are_refused(torch, add):
    x, b = torch.randn(3, 1), torch.randn(1)
    add.fast(x, b)  # the type is known to the fast path now
    lazy = torch.complex(x, x).conj().imag
    for bad in (x.clone().requires_grad_(), lazy, torch.nn.Parameter(x), x.to_sparse()):
        with pytest.raises(CallError):
            add.fast(bad, b)
    with pytest.raises(CallError, match="requires grad"):
        add.fast(x, b, out=torch.zeros(3, 1, requires_grad=True))


@pytest.mark.parametrize("n", [0, 9])
def test_bfloat16_crosses_from_and_to_torch_and_ml_dtypes(torch, n):
    x = Argument("x", "bfloat16", (N, M))
    kernel = compiled(
        loops(COPY, inputs=1, kind="i16"), Signature("copy", (x,), (replace(x, name="y"),), FACTS)
    )
    tensor = torch.randn(n, 3).bfloat16()
    array = np.asarray(tensor.float()).astype(ml_dtypes.bfloat16)
    for call in (kernel.fast, kernel.slow, kernel.fast):
        assert torch.equal(call(tensor), tensor)
        assert call(array).dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(call(array), array)
        assert torch.equal(call(tensor.T.contiguous().T), tensor)


def test_torch_calls_leave_no_references_behind(torch, add):
    x, b, out = torch.randn(3, 4), torch.randn(4), torch.empty(3, 4)
    grad = torch.zeros(3, 4, requires_grad=True)
    add.fast(x, b)
    gc.collect()
    watched = [x, b, out, grad, torch.Tensor, "requires_grad", True, False]
    before = [sys.getrefcount(each) for each in watched]
    for _ in range(2_000):
        add.fast(x, b)
        add.fast(x, b, out=out)
    for _ in range(200):
        with pytest.raises(CallError):
            add.fast(grad, b)
    gc.collect()
    after = [sys.getrefcount(each) for each in watched]
    assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < 100


def test_a_kernel_without_inputs_or_axes_takes_the_fast_path(slow_calls):
    text = """
define i64 @offcut_workspace(ptr %sizes) {
  ret i64 0
}
define i32 @offcut_entry(ptr %pointers, ptr %sizes, ptr %strides, ptr %workspace) {
  %y = load ptr, ptr %pointers
  store float 4.0, ptr %y
  ret i32 0
}
"""
    kernel = compiled(text, Signature("four", (), (Argument("y", "float32", ()),), ()))
    out = np.empty((), np.float32)
    assert kernel.fast() == 4
    assert kernel.fast(out=out) is out
    assert out == 4
    assert slow_calls == []
    assert kernel.slow() == 4


def test_sizes_are_by_name_where_inputs_have_them_in_another_order() -> None:
    text = """\
program P
size n in 0:99
size m in 0:99
input A: float32[m, n]
output C: float32[n, m]
for i in 0:n
  for j in 0:m
    C[i, j] = A[j, i]
"""
    array = np.arange(15, dtype=np.float32).reshape(3, 5)
    emulated = oc.target("cuda", machine="h200", device="emulated")
    for target in ("cpu", "interpret", emulated):
        kernel = oc.compile(oc.parse(text), target=target)
        np.testing.assert_array_equal(np.asarray(kernel(array)), array.T)


def test_sizes_by_keyword_go_the_fast_way_and_are_checked() -> None:
    program = oc.parse(
        """\
program moved
size steps in 0:9
size n in 1:33
size shift in 0:5
inout A: int32[n]
for t in 0:steps
  for i in 0:n
    A[i] = A[i] + shift
""".replace("A[i] + shift", "A[i] + int32(shift)")
    )
    kernel = oc.compile(program)
    given = np.arange(5, dtype=np.int32)

    def steps(call: object) -> int:
        count = 0

        def trace(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(trace)
        try:
            call()  # type: ignore[operator]
        finally:
            sys.setprofile(None)
        return count

    out = np.empty_like(given)
    computed = {"".join(["ste", "ps"]): 3, "".join(["sh", "ift"]): 2}
    for sizes in ({"steps": 3, "shift": 2}, {"shift": 2, "steps": 3}, computed):
        assert np.array_equal(kernel(given, **sizes), given + 6)
        assert kernel(given, out=out, **sizes) is out
        assert np.array_equal(out, given + 6)
        assert steps(lambda sizes=sizes: kernel(given, **sizes)) == 1
    assert kernel(given, **computed, **{"".join(["o", "ut"]): out}) is out
    assert np.array_equal(kernel(given, steps=np.int64(3), shift=2, n=5), given + 6)
    for wrong in ({"steps": 3}, {"steps": 9, "shift": 0}, {"steps": -1, "shift": 0}):
        with pytest.raises(CallError):
            kernel(given, **wrong)
    for wrong in (10**30, -(10**30), 2.0, "3", True, None):
        with pytest.raises(CallError):
            kernel(given, steps=wrong, shift=0)
    for _ in range(3):
        with pytest.raises(CallError, match="has no keyword stps"):
            kernel(given, stps=3, shift=0)
    before = sys.getrefcount(given)
    for _ in range(1000):
        kernel(given, steps=1, shift=1)
    assert sys.getrefcount(given) == before
