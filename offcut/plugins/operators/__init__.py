"""Operators that torch and ONNX have as one, each composed of ours once: windows, padding, recurrences, norms, quotients of integers."""
