"""Every schedule of a small space measured once, and the regret of whoever chooses without that."""

from offcut.tuning.exhaustive.regret import SEEDS, Chosen, Explored, Findings, Pick, measure_space
from offcut.tuning.exhaustive.space_table import LIMIT, Subspace, Table

__all__ = [
    "LIMIT",
    "SEEDS",
    "Chosen",
    "Explored",
    "Findings",
    "Pick",
    "Subspace",
    "Table",
    "measure_space",
]
