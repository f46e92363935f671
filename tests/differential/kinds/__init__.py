"""The kinds of programs that people write, each a function from choices to a program."""

from __future__ import annotations

from collections.abc import Callable

from ..drawing import Draw, Drawn
from .chains import chain
from .conditions import bounds, branches
from .contractions import contraction, products
from .described import described_chain, described_contraction, described_operator, described_window
from .facts import facts
from .gathers import gather
from .layers import layer
from .moved import moved
from .nests import pipeline
from .networks import network
from .order import order
from .parted import parted
from .rows import reduction, softmax
from .stencils import convolution, in_place, stencil
from .sums import sums
from .tiled import tiled
from .values import values
from .wild import wild
from .written import written

KINDS: dict[str, Callable[[Draw], Drawn]] = {
    "contraction": contraction,
    "products": products,
    "sums": sums,
    "tiled": tiled,
    "chain": chain,
    "branches": branches,
    "bounds": bounds,
    "facts": facts,
    "gather": gather,
    "pipeline": pipeline,
    "reduction": reduction,
    "softmax": softmax,
    "stencil": stencil,
    "convolution": convolution,
    "in_place": in_place,
    "moved": moved,
    "wild": wild,
    "described_contraction": described_contraction,
    "described_chain": described_chain,
    "described_window": described_window,
    "described_operator": described_operator,
    "layer": layer,
    "network": network,
    "order": order,
    "values": values,
    "written": written,
    "parted": parted,
}
