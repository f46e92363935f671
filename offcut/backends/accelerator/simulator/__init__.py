"""A machine of queues, simulated: values bit for bit, cycles, races, bytes, energy."""

from offcut.backends.accelerator.simulator.run import Race, Run
from offcut.backends.accelerator.simulator.simulate import simulate, timed
from offcut.backends.accelerator.simulator.timing import Event, Stall

__all__ = ["Event", "Race", "Run", "Stall", "simulate", "timed"]
