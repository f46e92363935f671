"""Instruction sets of the CPU, chosen from what the host has before any code is generated.

A missing feature aborts code generation, which Python cannot catch, so features are asked first.
``OFFCUT_HIDE_FEATURES=avx512f,avx2`` hides some, so that every path can be tested on one machine.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from offcut.core.dtypes import ITEM_BYTES
from offcut.core.microkernel import Microkernel
from offcut.errors import TargetError


@dataclass(frozen=True, slots=True)
class Isa:
    """A vector instruction set.

    register_bytes  bytes of a vector register
    registers       how many there are
    fma             whether multiply–add is one instruction and one rounding
    features        what the host must have, in LLVM's names
    """

    name: str
    register_bytes: int
    registers: int
    fma: bool
    features: frozenset[str]

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` in a register."""
        return self.register_bytes // ITEM_BYTES[dtype]


AVX512 = Isa(
    "avx512",
    64,
    32,
    True,
    frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq", "avx2", "fma"}),
)
AVX2 = Isa("avx2", 32, 16, True, frozenset({"avx2", "fma"}))
PORTABLE = Isa("portable", 16, 16, False, frozenset())
ISAS = (AVX512, AVX2, PORTABLE)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that code is generated for: LLVM's triple and the features that are not hidden.

    external  microkernels that are lent to it, for one kernel
    threads   that a call of a kernel may use, at most
    """

    triple: str
    features: frozenset[str]
    isa: Isa
    external: tuple[Microkernel, ...] = ()
    threads: int = 1

    @property
    def facts(self) -> tuple[str, ...]:
        """All that code which is generated for it depends on."""
        return self.triple, self.feature_string, repr(self.external), str(self.threads)

    @property
    def feature_string(self) -> str:
        """LLVM's spelling: every known feature on or off, so that hidden ones are never used."""
        known = set(_host_features()) | self.features
        return ",".join(f"{'+' if f in self.features else '-'}{f}" for f in sorted(known))


def host() -> Host:
    """This machine, less what ``OFFCUT_HIDE_FEATURES`` hides.

    Raises TargetError when a hidden name is no feature that offcut or LLVM knows.
    """
    return _host(os.environ.get("OFFCUT_HIDE_FEATURES", ""))


_BASELINE = frozenset({"sse", "sse2", "fxsr", "mmx", "cmov", "cx8", "64bit"})


@cache
def _host(hidden_text: str) -> Host:
    hidden = frozenset(filter(None, (part.strip() for part in hidden_text.split(","))))
    there = _host_features()
    known = frozenset(there).union(*(isa.features for isa in ISAS))
    unknown = hidden - known
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
    features = frozenset(name for name, on in there.items() if on and name not in drop)
    isa = next(isa for isa in ISAS if isa.features <= features)
    return Host(llvm.get_process_triple(), features, isa)


def here(features: Collection[str]) -> str | None:
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
