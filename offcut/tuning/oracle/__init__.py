"""Every schedule of a small space measured once, and the regret of whoever chooses without that."""

from offcut.tuning.oracle.run import SEEDS, Chosen, Explored, Findings, Pick, oracle
from offcut.tuning.oracle.table import LIMIT, Part, Table

__all__ = ["LIMIT", "SEEDS", "Chosen", "Explored", "Findings", "Part", "Pick", "Table", "oracle"]
