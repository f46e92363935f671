"""Runs programs of units side by side on numpy arrays, and checks what a machine does not: races, phases, bounds."""

from offcut.backends.executor.execute import MachineChecks, execute
from offcut.backends.executor.faults import FINDERS, ExecutionFault

__all__ = ["FINDERS", "ExecutionFault", "MachineChecks", "execute"]
