"""Runs programs of units side by side on numpy arrays, and checks what a GPU does not: races, phases, bounds."""

from offcut.backends.gpu.executor.execute import execute
from offcut.backends.gpu.executor.faults import FINDERS, ExecutionFault
from offcut.backends.gpu.executor.limits import Limits

__all__ = ["FINDERS", "ExecutionFault", "Limits", "execute"]
