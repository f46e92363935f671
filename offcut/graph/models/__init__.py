"""Graphs that run: kernels, the arena, frames of calls, what a call runs."""
