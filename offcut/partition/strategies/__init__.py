"""Tail strategies, where their tiles lie, and the proof of a cut of one axis."""
