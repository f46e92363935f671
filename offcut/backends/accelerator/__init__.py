"""Machines of queues: accelerators whose load, compute and store units run side by side, planned for, lowered to, and simulated."""
