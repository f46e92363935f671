"""Other libraries on the same task, each called the way that is fastest for it.

A peer offers several *ways*: numpy's matmul into a given array, torch's `mm`, its `linear`, and the
same with a weight packed beforehand by oneDNN or by MKL. What a way prepares from constant operands
(a transposed copy, a packed one, a session) is outside its measured time, as packing is for offcut.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from offcut.core.names import warn_renamed
from offcut.errors import DescribeError
from offcut.studies.peers.loops import COMPILERS
from offcut.studies.peers.loops import LOOP_COMPILERS as LOOP_COMPILERS
from offcut.studies.peers.loops import LoopCompiler as LoopCompiler
from offcut.studies.peers.loops import LoopTask as LoopTask
from offcut.studies.peers.matmul import Matmul as Matmul
from offcut.studies.peers.matmul import Peer as Peer
from offcut.studies.peers.matmul import Way as Way
from offcut.studies.peers.matmul import as_matmul as as_matmul
from offcut.studies.peers.with_numpy import Numpy as Numpy
from offcut.studies.peers.with_onnxruntime import Onnxruntime as Onnxruntime
from offcut.studies.peers.with_openvino import Openvino as Openvino
from offcut.studies.peers.with_torch import Torch as Torch
from offcut.studies.peers.with_torch import TorchCompiled as TorchCompiled

COMPILED = "torch.compile"
"""A peer of its own: it is never among the ways of torch, since it takes minutes to compile."""

PEERS: Mapping[str, tuple[str, ...]] = {
    "numpy": ("numpy.matmul", "numpy.einsum"),
    "torch": (
        "torch.mm",
        "torch.bmm",
        "torch.linear",
        "torch.onednn",
        "torch.mkl",
        "torch.einsum",
        COMPILED,
    ),
    "onnxruntime": ("onnxruntime.MatMul",),
    "openvino": ("openvino.MatMul",),
}
"""The peers, each with the ways to call it; a peer is measured by the fastest of its ways."""

COMPUTES: Mapping[str, str] = {
    "numpy": "contractions in float32 and float64, with every epilogue but gelu; attention, softmax and layer norm in float32",
    "torch": "contractions in float32 with epilogues, matrix products without in float64, float16, bfloat16 and int8; attention, "
    "convolutions, softmax, layer norm, dequantized products; modules of torch",
    COMPILED: "matrix products in float32 and bfloat16, with an epilogue where the second operand is constant; attention, "
    "convolutions, softmax, layer norm; modules of torch",
    "onnxruntime": "matrix products in float32 with epilogues, and in int8 and uint8; attention, convolutions, softmax and layer "
    "norm in float32, dequantized products; files of ONNX, modules of torch",
    "openvino": "matrix products in float32 with epilogues, and in bfloat16; attention in both, convolutions, softmax and layer "
    "norm in float32; files of ONNX, modules of torch",
    **dict.fromkeys(LOOP_COMPILERS, "the loops that are described, in the types of C"),
}
"""The operators and element types of each peer; where an array cannot be given as it lies, it has no way either."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    "onnxruntime": ("onnxruntime", "onnx"),
    "openvino": ("openvino", "onnx"),
    **dict.fromkeys(COMPILERS, ()),
}
"""The packages that a peer is called with, where they are others than its own alone."""


@dataclass(frozen=True, slots=True)
class Peers:
    """The peers that were asked for.

    available  those that are installed
    missing   names of those that are not
    versions  of the packages of those
    session   what their calls have to run in
    """

    available: tuple[Peer, ...]
    missing: tuple[str, ...]
    versions: tuple[str, ...]
    session: Callable[[], AbstractContextManager[object]]

    @property
    def found(self) -> tuple[Peer, ...]:
        """Return the peers that are installed; the old name of `available`."""
        warn_renamed("Peers.found", "Peers.available")
        return self.available


def load_peers(names: Iterable[str], threads: int = 1) -> Peers:
    """Return the peers of these names, such as ``torch`` (its fastest way), ``torch.mm`` (that way), or a compiler of loops.

    threads   of every peer; numpy's are set by the environment before it is loaded

    Raises DescribeError when a name is not known.
    """
    peers: list[Peer] = []
    missing: list[str] = []
    versions: list[str] = []
    session: Callable[[], AbstractContextManager[object]] = nullcontext
    for name in dict.fromkeys(names):
        package = name.partition(".")[0]
        if name not in (*PEERS, *LOOP_COMPILERS) and name not in PEERS.get(package, ()):
            help = tuple(f"{peer}, or one of {', '.join(ways)}" for peer, ways in PEERS.items())
            what, because = f"there is no peer {name!r}", f"the peers are {', '.join(PEERS)}"
            at = f"--against {name}"
            raise DescribeError("sweep", what, at=at, because=because, help=help)
        if missing_packages(name):
            missing.append(name)
            continue
        if name in LOOP_COMPILERS:
            peers.append(LoopCompiler(name))
            continue
        library = importlib.import_module(package)
        versions.append(f"{package} {_version(library)}")
        peers.append(_make_peer(name, library, threads))
        if package == "torch":
            library.set_num_threads(threads)
            session = library.inference_mode
    return Peers(tuple(peers), tuple(missing), tuple(dict.fromkeys(versions)), session)


def missing_packages(peer: str) -> list[str]:
    """Return the packages that a peer, or a way of one, is called with and that are not installed."""
    package = peer.partition(".")[0]
    needs = NEEDS.get(package, (package,))
    return [need for need in needs if importlib.util.find_spec(need) is None]


@dataclass(frozen=True, slots=True)
class OneWay:
    """One of the ways of a peer, alone."""

    name: str
    peer: Peer

    def ways(self, task: Any, /) -> tuple[Way, ...]:
        """Return that way; none where the peer cannot compute `task` so."""
        return tuple(way for way in self.peer.ways(task) if way.name == self.name)


def _make_peer(name: str, library: Any, threads: int) -> Peer:
    package = name.partition(".")[0]
    peers: dict[str, Callable[[], Peer]] = {
        COMPILED: lambda: TorchCompiled(library),
        "numpy": lambda: Numpy(einsum=name == "numpy.einsum"),
        "torch": lambda: Torch(library),
        "onnxruntime": lambda: Onnxruntime(library, threads),
        "openvino": lambda: Openvino(library, threads),
    }
    if name in peers:
        return peers[name]()
    return OneWay(name, peers[package]())


def _version(library: Any) -> str:
    """Return the version of a package, less the build that some put behind it."""
    return str(library.__version__).partition("-")[0]
