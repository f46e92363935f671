"""The instruction that sums products of bfloat16 in pairs, as LLVM IR: its kernels run on any machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from offcut.backends.cpu.machine import isa
from offcut.backends.cpu.microkernels import available, bf16_dots
from offcut.backends.cpu.microkernels.family import Shapes, Variant
from tests.facade import forget_plans

_V, _I = "<16 x float>", "<16 x i32>"
_NORMAL = 0x7F800000  # what a denormal and a zero have none of


def _all(value: int) -> str:
    return "<" + ", ".join([f"i32 {value}"] * 16) + ">"


def _flushed(new: str, value: str) -> str:
    """Denormals become zeros of their sign."""
    return f"""  %{new}_bits = bitcast {_V} {value} to {_I}
  %{new}_exponent = and {_I} %{new}_bits, {_all(_NORMAL)}
  %{new}_small = icmp eq {_I} %{new}_exponent, zeroinitializer
  %{new}_sign = and {_I} %{new}_bits, {_all(-(2**31))}
  %{new}_kept = select <16 x i1> %{new}_small, {_I} %{new}_sign, {_I} %{new}_bits
  %{new} = bitcast {_I} %{new}_kept to {_V}"""


def _halves(name: str) -> str:
    return f"""  %{name}_words = bitcast <32 x bfloat> %{name} to {_I}
  %{name}_up = shl {_I} %{name}_words, {_all(16)}
  %{name}_high = and {_I} %{name}_words, {_all(-65536)}
  %{name}_first = bitcast {_I} %{name}_up to {_V}
  %{name}_second = bitcast {_I} %{name}_high to {_V}
{_flushed(f"{name}0", f"%{name}_first")}
{_flushed(f"{name}1", f"%{name}_second")}"""


EMULATED = f"""
define internal {_V} @emulated_dot({_V} %c, <32 x bfloat> %a, <32 x bfloat> %b) noinline {{
{_flushed("start", "%c")}
{_halves("a")}
{_halves("b")}
  %one = call {_V} @llvm.fma.v16f32({_V} %a1, {_V} %b1, {_V} %start)
{_flushed("between", "%one")}
  %two = call {_V} @llvm.fma.v16f32({_V} %a0, {_V} %b0, {_V} %between)
{_flushed("sum", "%two")}
  ret {_V} %sum
}}
declare {_V} @llvm.fma.v16f32({_V}, {_V}, {_V})
"""


def emulated(text: str) -> str:
    """LLVM IR of row blocks with the instruction spelt out."""
    kept = [
        line
        for line in text.splitlines()
        if not line.startswith("declare") or not (bf16_dots.DOT in line or "llvm.fma" in line)
    ]
    return "\n".join(kept).replace(bf16_dots.DOT, "@emulated_dot") + EMULATED


class Emulated(isa.Host):
    """A host whose instruction is emulated; a class of its own, so that no cache by `Host` mixes the two."""

    @property
    def lacking(self) -> tuple[str, ...]:
        return tuple(name for name in super().lacking if name != "avx512bf16")


@contextmanager
def on_emulated(issue: float = 1.0) -> Iterator[None]:
    """Kernels that are built inside run on a host that says it has the instruction, and no tensor unit.

    issue   the time of it over that of a multiply–add
    """
    host, real = isa.host(), bf16_dots.tiles
    features = {name for name in host.features if not name.startswith("amx")} | bf16_dots.FEATURES
    with_it = Emulated(host.triple, frozenset(features), host.isa)

    def tiles(isa: isa.Isa, variant: Variant, shapes: Shapes) -> str:
        return emulated(real(isa, variant, shapes))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isa, "host", lambda: with_it)
        patch.setattr(bf16_dots, "tiles", tiles)
        patch.setattr(bf16_dots, "issue", lambda _: issue)
        patch.setenv("OFFCUT_CACHE", "off")
        available.families.cache_clear()
        forget_plans()
        yield
