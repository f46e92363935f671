"""Measuring: sweeps against peers, the demo, pictures, the machine beside every number."""
