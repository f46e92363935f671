"""Schedules of one product, which every host is told: ``acc = A @ B`` over p, ``C = 2 * acc``; loops i and j."""

from __future__ import annotations

from typing import Any

import numpy as np

import offcut as oc

T = 4
SIZES = (0, 1, T - 1, T, T + 1, 3 * T, 3 * T + 5)
DEPTH = 6  # of the sums
STRATEGIES = (
    *("guard", "cut", "mask", "pad", "shift", "ladder", "balance", "even"),
    *("residue", "version", "mix"),
)
TAILS = {
    f"{tail} of {axis}": f"split acc.{axis} {tail} {T} as {axis}o {axis}i"
    for tail in STRATEGIES
    for axis in "ij"
}
SUMS = {
    f"{tail} of p": f"split acc.p {tail} {T} as po pi" for tail in ("cut", "guard", "mask", "pad")
}

DECISIONS = {
    "levels": "split acc.j ladder 12 then mask 4 as jg j_ jj\nsplit C.i ladder of 4 2 1 as io ii",
    "fuse": "split C.i 4 as io ii\nsplit C.j 4 as jo ji\norder C io jo ii ji\nfuse C.ii C.ji as t\nbind C.t unroll",
    "order": "order acc p j i\norder C j i",
    "at": "split C.i mask 4 as io ii\nat acc C.io",
    "at in a memory, in turn": "split C.i balance 4 as io ii\nsplit C.j mask 8 as jo ji\norder C io jo ii ji\nat acc C.jo in tiles depth 2",
    "at, three in turn": "split C.i 2 as io ii\nat acc C.io depth 3",
    "stage read": "split C.i shift 4 as io ii\nat acc C.io\nstage read A for acc as AL\nat AL C.io depth 2",
    "stage read in the stage": "stage read B for acc as BL\nsplit acc.j cut 4 as jo ji\norder acc jo i ji\nat BL acc.jo",
    "stage value": "stage value A[i, p]*B[p, j] for acc as V(i, p, j)\nat V acc.i",
    "layouts": "split C.i mask 4 as io ii\nat acc C.io\nstage read A for acc as AL layout panels(0, 1, 4)\nat AL C.io depth 2\n"
    "stage read B for acc as BL layout panels(0, 1, 4, 2, 2)",
    "stage write": "split C.i 4 as io ii\nstage write acc as accL",
    "inline": "stage value acc[i, j] * 2.0 for C as D(i, j)\ninline D",
    "rfactor": "split acc.p 4 as po pi\nrfactor acc.po as part",
    "threads": "split C.i 4 as io ii\nat acc C.io\nbind C.io thread",
    "lanes": "split C.j 4 as jo ji\nbind C.ji lane\nsplit acc.j mask 4 as jo ji\norder acc i jo p ji\nbind acc.ji lane",
    "unroll": "split acc.i 4 as io ii\nbind acc.ii unroll",
    "choose": "choose\n  option one costs 1e-09*float64({n})\n    split C.i 4 as io ii\n    bind C.io thread\n"
    "  option two costs 4e-09\n    split C.i shift 2 as io ii\n  option three costs 3e-09 + 1e-10*float64({n})",
    "separate": "separate 4\nsplit C.i mask 4 as io ii",
    "everything": "split C.i balance 4 as io ii\nsplit C.j mask 4 as jo ji\norder C io jo ii ji\n"
    "stage read B for acc as BL\nat acc C.jo in tiles\nat BL C.jo\nbind C.io thread\nbind C.ji lane",
}
"""``{n}`` is the size of i."""

COVERS = {
    "cover": "split C.i pad 4 as io ii\nsplit C.j pad 4 as jo ji\norder C io jo ii ji\nat acc C.jo in tiles\ncover acc at i mm_4x4",
    "cover of full tiles": "split acc.i cut 4 as io ii\nsplit acc.j cut 4 as jo ji\norder acc io jo ii ji p\ncover acc at ii mm_4x4",
    "cover of a padded sum": "split acc.i pad 4 as io ii\nsplit acc.j 4 as jo ji\nsplit acc.p pad 4 as po pi\n"
    "order acc io jo po ii ji pi\ncover acc at ii mm_4x4x4",
}
KERNELS = {
    "a grid": "split C.i 4 as io ii\nsplit C.j mask 4 as jo ji\norder C io jo ii ji\n"
    "bind C.io blockIdx.x\nbind C.jo blockIdx.y\nbind C.ii threadIdx.y\nbind C.ji threadIdx.x\nat acc C.ji",
    "shared windows": "split C.i 4 as io ii\nsplit C.j mask 4 as jo ji\norder C io jo ii ji\n"
    "bind C.io blockIdx.x\nbind C.jo blockIdx.y\nbind C.ii threadIdx.y\nbind C.ji threadIdx.x\n"
    "stage read A for acc as AL\nat acc C.jo\nat AL C.jo\nbind acc.i threadIdx.y\nbind acc.j threadIdx.x",
    "chunks of a sum": "split C.i 4 as io ii\nsplit C.j 8 as jo ji\norder C io jo ii ji\nat acc C.jo\nbind C.io blockIdx.x\nbind C.ii threadIdx.x\n"
    "split acc.p 3 as po pi\nstage read B for acc as BL\norder acc po i j pi\nat BL acc.po\nbind acc.i threadIdx.x",
}


def declare() -> None:
    """Declare the instructions that `COVERS` name."""
    for name, depth in (("mm_4x4", DEPTH), ("mm_4x4x4", 4)):
        x = oc.placeholder((4, depth), "float32", name="x")
        y = oc.placeholder((depth, 4), "float32", name="y")
        k = oc.reduce_axis(depth, name="k")
        z = oc.compute(
            (4, 4), lambda i, j, x=x, y=y, k=k: oc.sum(x[i, k] * y[k, j], axis=k), name="z"
        )
        if depth == DEPTH:
            oc.decl_tensor_intrin(z, lambda ins, outs, name=name: _instruction(name, ins, outs))
        else:
            oc.decl_tensor_intrin(
                z,
                lambda ins, outs, name=name: (
                    _instruction(name, ins, outs),
                    oc.hardware_intrinsic(f"{name}_zero", outs[0].access_ptr("w")),
                    _instruction(f"{name}_add", ins, outs, "rw"),
                ),
            )


def _instruction(name: str, ins: Any, outs: Any, mode: str = "w") -> Any:
    pointers = (*(one.access_ptr("r") for one in ins), outs[0].access_ptr(mode))
    return oc.hardware_intrinsic(name, *pointers)


def _whole(x: Any, y: Any, z: Any) -> None:
    z[...] = x @ y


def _zero(z: Any) -> None:
    z[...] = 0


def _add(x: Any, y: Any, z: Any) -> None:
    z[...] += x @ y


INTRINSICS = {"mm_4x4": _whole, "mm_4x4x4": _whole, "mm_4x4x4_zero": _zero, "mm_4x4x4_add": _add}


def arrays(n: int, m: int) -> tuple[Any, Any, Any]:
    """Return A, B and a poisoned C; sums of small integers are exact."""
    rng = np.random.default_rng(n)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((n, DEPTH), (DEPTH, m)))
    return a, b, np.full((n, m), np.nan, np.float32)
