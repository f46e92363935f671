"""A machine of queues, simulated: values bit for bit, cycles, races, bytes, energy."""

from offcut.backends.accelerator.simulator.run_result import Race, SimulationResult
from offcut.backends.accelerator.simulator.simulate import simulate, simulate_timing
from offcut.backends.accelerator.simulator.timing import Event, Stall

__all__ = ["Event", "Race", "SimulationResult", "Stall", "simulate", "simulate_timing"]
