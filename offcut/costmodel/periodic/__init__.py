"""Formulas of functions of sizes that become periodic: affine between a few sizes, and from one of them on with a period."""

from offcut.costmodel.periodic.fit import PeriodicFit, fit_periodic

__all__ = ["PeriodicFit", "fit_periodic"]
