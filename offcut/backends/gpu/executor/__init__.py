"""Runs programs of a GPU's units on numpy arrays, and checks what a GPU does not: covers, boxes, the limits of a block."""

from offcut.backends.executor import FINDERS, ExecutionFault
from offcut.backends.gpu.executor.execute import execute
from offcut.backends.gpu.executor.limits import Limits

__all__ = ["FINDERS", "ExecutionFault", "Limits", "execute"]
