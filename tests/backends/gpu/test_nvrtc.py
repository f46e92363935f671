"""The compiler of kernels: what of its log is an error, what is missing, and the cache; by kept logs, and by NVRTC where it is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from conftest import rejection
from fake_driver import FakeNvrtc

import offcut as oc
from offcut.backends.gpu import driver, nvrtc
from offcut.backends.gpu.nvrtc import KernelUsage, kernel_usages, slow_line
from offcut.errors import InternalError

INSTALLED = importlib.util.find_spec("cuda") is not None
HEAD = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
"""
CLEAN = f"""\
{HEAD}\
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 2 barriers
ptxas info    : Compile time = 10.009 ms
ptxas info    : Compiling entry function 'k2' for 'sm_90a'
ptxas info    : Function properties for k2
ptxas         .     16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 16 bytes cumulative stack size
"""
SPILLED = f"""\
{HEAD}\
ptxas         .     1984 bytes stack frame, 3468 bytes spill stores, 4084 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 1984 bytes cumulative stack size
"""
IGNORED = "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry."
SERIAL = "ptxas info    : (C75{}) Potential Performance Loss: wgmma.mma_async instructions are serialized due to {} in the function 'k'"
REASONS = {
    10: "the presence of Extern calls",
    11: "insufficient register resources for the wgmma pipeline",
    12: "ill formed pipeline stage",
}
ERRORS = {
    "a spill": (
        SPILLED,
        0,
        """\
compile: does not take slow code for sm_90a
  at       k: 3468 bytes spill stores, 4084 bytes spill loads
  because  values do not fit in its 64 registers a thread
  help     smaller tiles
  help     fewer stages that follow a sum element by element""",
    ),
    "registers": (
        CLEAN.replace("168", "169"),
        0,
        """\
compile: does not take slow code for sm_90a
  at       k: 169 registers a thread
  because  176 for each of 384 threads are more than the 65536 of a multiprocessor
  help     smaller tiles
  help     fewer stages that follow a sum element by element""",
    ),
    "setmaxnreg": (
        IGNORED + "\n" + CLEAN,
        0,
        f"""\
compile: does not take slow code for sm_90a
  at       {IGNORED}
  because  setmaxnreg is ignored
  help     smaller tiles
  help     fewer stages that follow a sum element by element""",
    ),
    "an architecture": (
        "nvrtc: error: invalid value for --gpu-architecture (-arch)\n",
        5,
        """\
compile: cannot compile for sm_90a
  because  NVRTC 13.0 says: nvrtc: error: invalid value for --gpu-architecture (-arch)
  help     sm_80 and sm_90a are architectures that it knows""",
    ),
}


def compiled(log: str, status: int = 0) -> tuple[bytes, str]:
    return nvrtc.compile_cubin("compile", "text", "sm_90a", {"k": 384}, FakeNvrtc(log, status))


def test_a_log_without_faults_gives_the_code_and_what_each_kernel_takes() -> None:
    assert compiled(CLEAN) == (b"text", CLEAN)
    usages = KernelUsage("k", 168, 0, 0, 0), KernelUsage("k2", 40, 16, 0, 0)
    assert kernel_usages(CLEAN) == usages


@pytest.mark.parametrize("what", ERRORS)
def test_what_a_log_says_of_slow_code_is_an_error(what: str) -> None:
    log, status, expected = ERRORS[what]
    with rejection(f"TargetError: {expected}"):
        compiled(log, status)


@pytest.mark.parametrize("number", REASONS)
def test_products_that_are_made_serial_are_an_error(number: int) -> None:
    line = SERIAL.format(number, REASONS[number])
    slow = slow_line(line + "\n" + CLEAN, {})
    assert slow is not None
    assert slow[0] == line
    assert slow[1].startswith("products of a warpgroup run one after the other")


def test_a_text_that_is_none_is_a_fault_of_ours() -> None:
    log = 'kernel.cu(1): error: identifier "b" is undefined\n  b[0]\n  ^\n1 error detected\n'
    with pytest.raises(InternalError, match=r'kernel\.cu\(1\): error: identifier "b" is undefined'):
        compiled(log, 6)


def test_code_is_compiled_once_for_a_text_and_an_architecture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OFFCUT_CACHE", str(tmp_path))
    compiler = FakeNvrtc()
    monkeypatch.setattr(nvrtc, "nvrtc_module", lambda op: compiler)
    for text, architecture in (("a", "sm_80"), ("a", "sm_80"), ("a", "sm_90a"), ("b", "sm_80")):
        assert nvrtc.cached_cubin("compile", text, architecture, {}) == text.encode()
    assert compiler.texts == [b"a", b"a", b"b"]


def wheel(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    """Make ``cuda.bindings`` hold a module with these functions, or be missing where there are none."""
    bindings: Any = ModuleType("cuda.bindings")
    if functions:
        setattr(bindings, name, SimpleNamespace(**functions))
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.delitem(sys.modules, f"cuda.bindings.{name}", raising=False)


def failing(text: str) -> Any:
    def call(*_: object) -> None:
        raise RuntimeError(text)

    return call


MISSING = {
    "no bindings": ({}, "cuda-bindings", "it is not installed"),
    "no library": (
        {"nvrtcVersion": failing('Failure finding "libnvrtc.so.13": No such file')},
        "nvidia-cuda-nvrtc",
        'Failure finding "libnvrtc.so.13": No such file',
    ),
    "another version": (
        {"nvrtcVersion": lambda: (0, 12, 8)},
        "nvidia-cuda-nvrtc",
        "13.0 is asked for, and 12.8 is there",
    ),
}


@pytest.mark.parametrize("what", MISSING)
def test_a_compiler_that_is_missing_is_named_by_its_wheel(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions, name, because = MISSING[what]
    wheel(monkeypatch, "nvrtc", **functions)
    with rejection(f"""\
TargetError: compile: cannot compile CUDA C++ without the wheel {name}
  because  {because}
  help     this needs the extra "gpu": pip install ".[gpu]" in the folder of offcut
  help     device="emulated" runs on numpy arrays, without a compiler"""):
        nvrtc.nvrtc_module.__wrapped__("compile")


DRIVERS = {
    "no bindings": (
        {},
        """\
compile: cannot reach a GPU without the wheel cuda-bindings
  because  it is not installed
  help     this needs the extra "gpu": pip install ".[gpu]" in the folder of offcut
""",
    ),
    "no driver": (
        {"cuInit": failing("Failed to dlopen libcuda.so.1")},
        """\
compile: cannot run on a GPU
  because  no driver of a GPU was found: Failed to dlopen libcuda.so.1
""",
    ),
    "no GPU": (
        {
            "cuInit": lambda flags: (100,),
            "CUresult": lambda status: SimpleNamespace(name="CUDA_ERROR_NO_DEVICE"),
        },
        """\
compile: cannot run on a GPU
  because  no GPU was found: cuInit says CUDA_ERROR_NO_DEVICE
""",
    ),
}


@pytest.mark.parametrize("what", DRIVERS)
def test_a_driver_that_is_missing_is_said_to_be(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    functions, expected = DRIVERS[what]
    wheel(monkeypatch, "driver", **functions)
    with pytest.raises(oc.TargetError) as refused:
        driver.driver_api.__wrapped__("compile")
    emulated = '  help     device="emulated" runs on numpy arrays, without a GPU'
    assert str(refused.value) == expected + emulated


COMPILED_HERE = {
    "clean": 'extern "C" __global__ void k(float *a, int n) { if (threadIdx.x < n) a[threadIdx.x] = n; }',
    "spill": """\
extern "C" __global__ void __launch_bounds__(1024) k(float *a, int n) {
  float d[200];
  #pragma unroll
  for (int i = 0; i < 200; ++i) d[i] = a[i * n];
  #pragma unroll
  for (int i = 0; i < 200; ++i) d[i] = d[i] * d[(i * 7 + 3) % 200] + d[i * 11 % 200];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 200; ++i) a[i * n + threadIdx.x] = d[i] + d[199 - i] * d[i * 3 % 200];
}""",
    "setmaxnreg": 'extern "C" __global__ void k(float *a) { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); a[0] = 1; }',
    "serial": """\
extern "C" __global__ void __launch_bounds__(128) k(float *a, int n, unsigned long long x, unsigned long long y) {
  float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int i = 0; i < n; ++i) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "l"(x), "l"(y));
    d0 += 1;
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  a[threadIdx.x] = d0 + d1 + d2 + d3;
}""",
}
SAYS = {"spill": "bytes spill stores", "setmaxnreg": r"\(C7508\)", "serial": r"\(C751[012]\)"}


@pytest.mark.skipif(not INSTALLED, reason="cuda-bindings are not installed")
@pytest.mark.parametrize("what", COMPILED_HERE)
def test_the_compiler_says_what_the_kept_logs_say(what: str) -> None:
    text = COMPILED_HERE[what]
    if what == "clean":
        code, log = nvrtc.compile_cubin("compile", text, "sm_90a", {"k": 1024})
        assert code[:4] == b"\x7fELF"
        assert [usage.name for usage in kernel_usages(log)] == ["k"]
        return
    with pytest.raises(oc.TargetError, match=SAYS[what]):
        nvrtc.compile_cubin("compile", text, "sm_90a", {"k": 128})
