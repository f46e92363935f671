"""Instruction sets of the CPU: chosen from what a machine has, and asked for by exported code through `cpuid`.

A missing feature aborts code generation, which Python cannot catch, so features are asked first.
``OFFCUT_HIDE_FEATURES=avx512f,avx2`` hides some, and ``OFFCUT_MACHINE=zen5`` takes another machine's caches, rates and
lack of features for this one's, so that every path can be tested on one machine.

Which features exported code needs, and how a C program asks the processor for them.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import llvmlite.binding as llvm

from offcut.backends.host import cache as objects
from offcut.backends.host.cache import CACHE_FACTS, DATA_CACHES, cache_text
from offcut.backends.llvm.ir import FunctionWriter
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.unpickle import unpickle
from offcut.costmodel import Machine, load, processor, processors
from offcut.describe.microkernel import Microkernel
from offcut.errors import TargetError


@dataclass(frozen=True, slots=True)
class Isa:
    """A vector instruction set of a machine.

    register_bytes  bytes of a vector register
    registers       how many there are
    fma             whether multiply–add is one instruction and one rounding
    features        what the host must have, in LLVM's names
    machine         what its instructions cost, and what was tuned on it
    """

    name: str
    register_bytes: int
    registers: int
    fma: bool
    features: frozenset[str]
    machine: Machine

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` in a register."""
        return self.register_bytes // ITEM_BYTES[dtype]


AVX512_FEATURES = frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq", "avx2", "fma"})
_SETS: dict[str, tuple[tuple[str, int, int, bool, frozenset[str]], ...]] = {
    "x86_64": (
        ("avx512", 64, 32, True, AVX512_FEATURES),
        ("avx2", 32, 16, True, frozenset({"avx2", "fma"})),
    ),
    "aarch64": (("neon", 16, 32, True, frozenset({"neon"})),),
}
"""By architecture, the best first: name, bytes of a register, registers, multiply–add, features."""
_PORTABLE = ("portable", 16, 16, False, frozenset[str]())


def isa_of(features: frozenset[str], machine: Machine) -> Isa:
    """The best instruction set that these features, in LLVM's names, are enough for."""
    sets = (*_SETS.get(machine.architecture, ()), _PORTABLE)
    return next(Isa(*one, machine) for one in sets if one[-1] <= features)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that code is generated for: LLVM's triple and the features that are not hidden.

    here      whether it is the machine that this process runs on
    external  microkernels that are lent to it, for one kernel
    threads   that a call of a kernel may use, at most
    """

    triple: str
    features: frozenset[str]
    isa: Isa
    here: bool = True
    external: tuple[Microkernel, ...] = ()
    threads: int = 1

    @property
    def machine(self) -> Machine:
        """Its description."""
        return self.isa.machine

    @property
    def facts(self) -> tuple[str, ...]:
        """All that code which is generated for it depends on."""
        kernels, threads = repr(self.external), str(self.threads)
        return self.triple, self.feature_string, repr(self.machine), kernels, threads

    @property
    def feature_string(self) -> str:
        """LLVM's spelling: every known feature on or off, so that hidden ones are never used."""
        if not self.here:
            return ",".join(f"+{name}" for name in sorted(self.features))
        llvm_features = set(_host_features()) | self.features
        return ",".join(f"{'+' if f in self.features else '-'}{f}" for f in sorted(llvm_features))

    @property
    def lacking(self) -> tuple[str, ...]:
        """What this process's machine lacks to run code for it: the architecture, or features."""
        own = _architecture(llvm.get_process_triple())
        if self.machine.architecture != own:
            return (self.machine.architecture,)
        there = _host_features()
        return tuple(sorted(name for name in self.features if not there.get(name, False)))


def host() -> Host:
    """This machine, less what ``OFFCUT_HIDE_FEATURES`` hides, as ``OFFCUT_MACHINE`` describes it.

    Raises TargetError when a hidden name is no feature that offcut or LLVM knows, and for a description of no
    processor of this architecture.
    """
    triple = llvm.get_process_triple()
    architecture = _architecture(triple)
    features = _visible(os.environ.get("OFFCUT_HIDE_FEATURES", ""))
    named = os.environ.get("OFFCUT_MACHINE", "")
    if named:
        features -= _unstated_features(named, architecture)
    return Host(triple, features, isa_of(features, detect_machine(architecture, features, named)))


@cache
def _unstated_features(named: str, architecture: str) -> frozenset[str]:
    """Return the features of this host that other descriptions state and this one does not, with all that needs them.

    Raises TargetError for a description of no processor of this architecture.
    """
    machine = processor(load(named))
    if machine.architecture != architecture:
        others = (one.name for one in processors(architecture))
        raise TargetError(
            "OFFCUT_MACHINE",
            f"cannot describe this host as {named}",
            because=f"that is {machine.architecture}, and this host is {architecture}",
            help=(", ".join(others), 'target("cpu", machine=…) plans for another architecture'),
        )
    stated = frozenset(map(in_llvm, machine.features))
    return _with_what_needs(_stated_features(architecture) - stated, _host_features())


def _stated_features(architecture: str) -> frozenset[str]:
    """What any shipped processor of an architecture has, in LLVM's names."""
    return frozenset(in_llvm(name) for one in processors(architecture) for name in one.features)


def host_for_machine(machine: Machine) -> Host:
    """The machine of a description, as this process would generate code for it."""
    features = frozenset(in_llvm(name) for name in machine.features)
    own = llvm.get_process_triple()
    foreign = machine.architecture != _architecture(own)
    triple = f"{machine.architecture}-unknown-linux-gnu" if foreign else own
    return Host(triple, features, isa_of(features, machine), here=False)


@cache
def detect_machine(architecture: str, features: frozenset[str], named: str = "") -> Machine:
    """This machine: the description that is nearest, with what the system says of cores and caches.

    named   the description that is taken instead, as it is: a shipped name, or a path
    """
    if named:
        return replace(processor(load(named)), name="host")
    near = _kept_nearest(architecture, features)
    core = replace(near.core, count=os.cpu_count() or near.core.count)
    near = replace(near, name="host", architecture=architecture, core=core)
    for level, index in enumerate(DATA_CACHES):
        size, ways, line = (_cache_fact(index, fact) for fact in CACHE_FACTS[:3])
        share = size // _sharing(index) if size and index == _SHARED else size
        near = near.with_memory(level, share, ways, line)
    return near


def _kept_nearest(architecture: str, features: frozenset[str]) -> Machine:
    """`nearest_machine`, from the disk where it was asked before: to read every description takes longer than to load a kernel."""
    name = objects.key("nearest", architecture, *sorted(features))
    data = objects.get_or_build(name, lambda: pickle.dumps(nearest_machine(architecture, features)))
    try:
        machine: Machine = unpickle(data)
    except pickle.UnpicklingError:  # somebody else wrote it
        return nearest_machine(architecture, features)
    return machine


def nearest_machine(architecture: str, features: frozenset[str]) -> Machine:
    """The shipped description whose features, in LLVM's names, differ least from these."""
    machines = {one.name: one for one in processors(architecture)}
    lists = {name: frozenset(map(in_llvm, one.features)) for name, one in machines.items()}
    known_features = features & frozenset().union(*lists.values())
    best = min(lists, key=lambda name: len(lists[name] ^ known_features), default="cascade-lake")
    return processor(load(best))


_SHARED = 3  # the first that cores share


def _cache_fact(index: int, fact: str) -> int | None:
    """A number that the system says of one of the core's caches; None where it does not."""
    text = cache_text(index, fact)
    digits, factor = text.rstrip("KM"), {"K": 1024, "M": 1 << 20}.get(text[-1:], 1)
    return int(digits) * factor if digits.isdigit() else None


def _sharing(index: int) -> int:
    """How many of this system's processors share one of the core's caches; 1 where it does not say."""
    ranges = (part.partition("-") for part in cache_text(index, CACHE_FACTS[3]).split(",") if part)
    return max(1, sum(int(last or first) - int(first) + 1 for first, _, last in ranges))


def _architecture(triple: str) -> str:
    architecture = triple.partition("-")[0]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(architecture, architecture)


_BASELINE = frozenset({"sse", "sse2", "fxsr", "mmx", "cmov", "cx8", "64bit"})


@cache
def _visible(hidden_text: str) -> frozenset[str]:
    """The features of this machine that are not hidden."""
    hidden = frozenset(filter(None, (part.strip() for part in hidden_text.split(","))))
    there = _host_features()
    sets = (one for each in _SETS.values() for one in each)
    visible_features = frozenset(there).union(*(features for *_, features in sets))
    unknown = hidden - visible_features
    if unknown:
        raise TargetError(
            "OFFCUT_HIDE_FEATURES",
            f"cannot hide {', '.join(sorted(unknown))}",
            because="no instruction set that offcut uses, and no feature of this host, has that name",
            help=("OFFCUT_HIDE_FEATURES=avx512f", "OFFCUT_HIDE_FEATURES=avx512f,avx2"),
        )
    if hidden & _BASELINE:
        raise TargetError(
            "OFFCUT_HIDE_FEATURES",
            f"cannot hide {', '.join(sorted(hidden & _BASELINE))}",
            because="every 64-bit x86 processor has it, and so has all code for one",
            help=("OFFCUT_HIDE_FEATURES=avx512f", "OFFCUT_HIDE_FEATURES=avx512f,avx2"),
        )
    drop = _with_what_needs(hidden, there)
    return frozenset(name for name, on in there.items() if on and name not in drop)


def detect_processor(features: Collection[str]) -> str | None:
    """The name of this processor, where it has these features, hidden or not; None where it lacks one."""
    there = _host_features()
    return str(llvm.get_host_cpu_name()) if all(there.get(name) for name in features) else None


_GENERATIONS = ("sse3", "ssse3", "sse4.1", "sse4.2", "avx", "avx2", "avx512f")
"""Each needs those before it."""
_NEEDED = {
    "avx": ("avx", "fma", "f16c", "vaes", "vpclmul", "xop"),
    "avx2": ("fma", "f16c", "avxvnni", "avxifma", "avxne", "vaes"),
    "f16c": ("avx512",),
    "fma": ("avx512",),
    "avx512f": ("avx512", "avx10", "amx"),
    "aes": ("vaes",),
    "pclmul": ("vpclmul",),
}
"""Feature -> how the names begin of those that need it: LLVM takes them away with it."""


def _with_what_needs(hidden: Collection[str], there: Collection[str]) -> frozenset[str]:
    """Hidden features, and all that cannot be without them."""
    drop = set(hidden)
    for position, name in enumerate(_GENERATIONS):
        if name in drop:
            drop.update(_GENERATIONS[position:])
    for name, beginnings in _NEEDED.items():
        if name in drop:
            drop.update(other for other in there if other.startswith(beginnings))
    return frozenset(drop)


@cache
def _host_features() -> dict[str, bool]:
    return dict(llvm.get_host_cpu_features())


_IN_LLVM = {
    "pni": "sse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "pclmulqdq": "pclmul",
    "abm": "lzcnt",
    "bmi1": "bmi",
    "lahf_lm": "sahf",
    "avx_vnni": "avxvnni",
    "fp": "fp-armv8",
    "asimd": "neon",
    "atomics": "lse",
    "crc32": "crc",
    "fphp": "fullfp16",
    "asimdhp": "fullfp16",
    "asimdrdm": "rdm",
    "asimddp": "dotprod",
    "lrcpc": "rcpc",
    "dcpop": "ccpp",
    "pmull": "aes",
    "sha1": "sha2",
}
_BEGINNINGS = {"avx512_": "avx512", "amx_": "amx-"}


def in_llvm(name: str) -> str:
    """LLVM's name of a feature that Linux names so."""
    for beginning, other in _BEGINNINGS.items():
        if name.startswith(beginning):
            return other + name.removeprefix(beginning)
    return _IN_LLVM.get(name, name)


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
