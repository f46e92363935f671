"""MLIR by xDSL: loop nests of `scf` and `memref` as loop programs and back, and a pass that cuts them."""

from offcut.core.extras import imports

with imports("offcut.plugins.mlir", "xdsl"):
    from offcut.plugins.mlir.guarding import guarded
    from offcut.plugins.mlir.nest import Extent, Nest
    from offcut.plugins.mlir.partition import UNIVERSE, OffcutPartition
    from offcut.plugins.mlir.reading import read
    from offcut.plugins.mlir.writing import EmittedNest

__all__ = ["UNIVERSE", "EmittedNest", "Extent", "Nest", "OffcutPartition", "guarded", "read"]
