"""Graphs that run: a model, its calls, what they cost; kernels, memory and parts of a batch are rooms of their own."""
