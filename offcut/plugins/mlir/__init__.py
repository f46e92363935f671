"""MLIR by xDSL: loop nests of `scf` and `memref` as loop programs and back, and a pass that cuts them."""

from offcut.core.extras import imports

with imports("offcut.plugins.mlir", "xdsl"):
    from offcut.plugins.mlir.export_scf import EmittedNest
    from offcut.plugins.mlir.import_scf import import_nest
    from offcut.plugins.mlir.nest import Extent, Nest
    from offcut.plugins.mlir.partition import UNIVERSE, OffcutPartition
    from offcut.plugins.mlir.sign_guards import guard_nest

__all__ = [
    "UNIVERSE",
    "EmittedNest",
    "Extent",
    "Nest",
    "OffcutPartition",
    "guard_nest",
    "import_nest",
]
