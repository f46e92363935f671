"""What a call takes on a machine of queues, in closed form."""

from offcut.backends.accelerator.costs.prediction import cost_of, formulas_of, run_streams

__all__ = ["cost_of", "formulas_of", "run_streams"]
