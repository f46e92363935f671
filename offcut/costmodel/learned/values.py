"""Arrays of numbers, one for each of several vectors of sizes or rows."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

Values: TypeAlias = NDArray[Any]
