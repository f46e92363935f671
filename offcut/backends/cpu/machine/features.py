"""Names of processor features: as Linux has them in /proc/cpuinfo, and as LLVM has them."""

from __future__ import annotations

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
