"""Which features exported code needs, and how a C program asks the processor for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from offcut.backends.cpu.machine.isa import Host
from offcut.backends.llvm.ir import FunctionWriter

_Place = tuple[int, int, int, int]

# Feature in LLVM's names -> where `cpuid` reports it: leaf, subleaf, register (eax 0 … edx 3), bit.
_GENERAL: dict[str, _Place] = {
    "sse3": (1, 0, 2, 0),
    "ssse3": (1, 0, 2, 9),
    "fma": (1, 0, 2, 12),
    "sse4.1": (1, 0, 2, 19),
    "sse4.2": (1, 0, 2, 20),
    "popcnt": (1, 0, 2, 23),
    "xsave": (1, 0, 2, 26),
    "avx": (1, 0, 2, 28),
    "f16c": (1, 0, 2, 29),
    "bmi": (7, 0, 1, 3),
    "avx2": (7, 0, 1, 5),
    "bmi2": (7, 0, 1, 8),
    "avx512f": (7, 0, 1, 16),
    "avx512dq": (7, 0, 1, 17),
    "avx512cd": (7, 0, 1, 28),
    "avx512bw": (7, 0, 1, 30),
    "avx512vl": (7, 0, 1, 31),
    "lzcnt": (0x80000001, 0, 2, 5),
}
# What only special code needs, with the words of LLVM IR by which such code is known.
_SPECIAL: dict[str, tuple[_Place, tuple[str, ...]]] = {
    "avx512vnni": ((7, 0, 2, 11), ("avx512.vpdp",)),
    "avx512bf16": ((7, 1, 0, 5), ("avx512bf16", "bfloat", "vdpbf16ps")),
    "avx512fp16": ((7, 0, 3, 23), ("avx512fp16", "half")),
    "amx-tile": ((7, 0, 3, 24), ("llvm.x86.tile", "llvm.x86.ldtilecfg", "x86_amx")),
    "amx-int8": ((7, 0, 3, 25), ("llvm.x86.tdpbs", "llvm.x86.tdpbu")),
    "amx-bf16": ((7, 0, 3, 22), ("llvm.x86.tdpbf16",)),
}
# Feature in LLVM's names -> the bit by which Linux reports it on aarch64 to who asks `getauxval` for `_HWCAP`.
_HWCAP_BITS = {"lse": 8, "fullfp16": 10, "rdm": 12, "rcpc": 15, "dotprod": 20}
_HWCAP = 16
_PLACES = _GENERAL | {name: place for name, (place, _) in _SPECIAL.items()}

# Registers that the system must save, by feature: bits of the extended control register 0.
_AVX_STATE, _AVX512_STATE, _TILE_STATE = 0x6, 0xE6, 0x60000
TILE_PERMISSION = 158, 0x1023, 18
"""The system call by which Linux is asked for tile registers: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILE_DATA)."""

_CPUID = (
    'call { i32, i32, i32, i32 } asm sideeffect "cpuid", '
    '"={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"'
)
_XGETBV = (
    'call { i32, i32 } asm sideeffect "xgetbv", '
    '"={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}"(i32 0)'
)
_SYSCALL = (
    'call i64 asm sideeffect "syscall", "={ax},{ax},{di},{si},~{rcx},~{r11},~{memory},'
    f'~{{dirflag}},~{{fpsr}},~{{flags}}"({", ".join(f"i64 {word}" for word in TILE_PERMISSION)})'
)


def required_features(host: Host, texts: Iterable[str]) -> tuple[str, ...]:
    """The features to generate code of these modules with: no more than what `emit_feature_test` can ask.

    What the host has for general code, and of the special features those that the code names.
    """
    is_arm = host.machine.architecture == "aarch64"
    general = [name for name in (_HWCAP_BITS if is_arm else _GENERAL) if name in host.features]
    modules = list(texts)
    special = [
        name
        for name, (_, words) in _SPECIAL.items()
        if name in host.features and any(word in text for text in modules for word in words)
    ]
    return (*general, *special)


def all_features(host: Host) -> tuple[str, ...]:
    """Return all features of the host that `emit_feature_test` can ask."""
    return tuple(name for name in _PLACES if name in host.features)


def emit_feature_test(symbol: str, features: Sequence[str], triple: str) -> str:
    """LLVM IR of ``i32 @symbol()``: 1 where processor and system have all `features`, else 0.

    Where tiles are among them, Linux is asked to let the process use them.
    """
    f = FunctionWriter()
    if triple.startswith("aarch64"):
        mask = sum(1 << _HWCAP_BITS[name] for name in features)
        there = f.let(f"and i64 {f.let(f'call i64 @getauxval(i64 {_HWCAP})')}, {mask}")
        good = f.let(f"icmp eq i64 {there}, {mask}")
        f.do(f"ret i32 {f.let(f'zext i1 {good} to i32')}")
        return f"declare i64 @getauxval(i64)\ndefine i32 @{symbol}() nounwind {{\n{f.text()}\n}}"
    good = "true"
    places = [_PLACES[name] for name in features]
    for leaf, subleaf in dict.fromkeys(place[:2] for place in places):
        good = _both(f, good, f.let(f"icmp uge i32 {_register(f, leaf & 1 << 31, 0, 0)}, {leaf}"))
        if subleaf:
            deepest = _register(f, leaf, 0, 0)
            good = _both(f, good, f.let(f"icmp uge i32 {deepest}, {subleaf}"))
        for register in range(4):
            mask = sum(1 << bit for *at, bit in places if at == [leaf, subleaf, register])
            if mask:
                bits = f.let(f"and i32 {_register(f, leaf, subleaf, register)}, {mask}")
                good = _both(f, good, f.let(f"icmp eq i32 {bits}, {mask}"))
    state = _state(features)
    if state:
        used = f.let(f"and i32 {_register(f, 1, 0, 2)}, {1 << 27}")  # xgetbv is enabled
        good = _both(f, good, f.let(f"icmp ne i32 {used}, 0"))
        _unless(f, good)
        low = f.let(f"extractvalue {{ i32, i32 }} {f.let(_XGETBV)}, 0")
        good = f.let(f"icmp eq i32 {f.let(f'and i32 {low}, {state}')}, {state}")
    if state & _TILE_STATE and "linux" in triple:
        _unless(f, good)
        good = f.let(f"icmp eq i64 {f.let(_SYSCALL)}, 0")
    f.do(f"ret i32 {f.let(f'zext i1 {good} to i32')}")
    return f"define i32 @{symbol}() nounwind {{\n{f.text()}\n}}"


def _register(f: FunctionWriter, leaf: int, subleaf: int, register: int) -> str:
    answer = f.let(f"{_CPUID}(i32 {leaf}, i32 {subleaf})")
    return f.let(f"extractvalue {{ i32, i32, i32, i32 }} {answer}, {register}")


def _both(f: FunctionWriter, one: str, other: str) -> str:
    return f.let(f"and i1 {one}, {other}")


def _unless(f: FunctionWriter, condition: str) -> None:
    """Return 0 where the condition does not hold."""
    go_on, stop = f.name("there"), f.name("lacking")
    f.do(f"br i1 {condition}, label {go_on}, label {stop}")
    f.start(stop)
    f.do("ret i32 0")
    f.start(go_on)


def _state(features: Sequence[str]) -> int:
    states = (("avx", _AVX_STATE), ("avx512", _AVX512_STATE), ("amx", _TILE_STATE))
    state_bits = 0
    for prefix, state in states:
        if any(name.startswith(prefix) for name in features):
            state_bits |= state
    return state_bits
