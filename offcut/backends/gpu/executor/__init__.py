"""Runs programs of units side by side on numpy arrays, and checks what a GPU would not say."""

from offcut.backends.gpu.executor.execute import Limits, execute
from offcut.backends.gpu.executor.faults import FINDERS, ExecutionFault

__all__ = ["FINDERS", "ExecutionFault", "Limits", "execute"]
