"""Search: the space of schedules of a program, what explores it, and what is predicted of its points."""

from offcut.search.prices import Expected, Price, Sizes
from offcut.search.space import Space

__all__ = ["Expected", "Price", "Sizes", "Space"]
