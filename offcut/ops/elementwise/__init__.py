"""Operators of one element of each operand: arithmetic, functions, conversions; shapes are joined as numpy does."""
