"""Tail strategies, the placement of their tiles, and the proof that tiles cover an axis."""
