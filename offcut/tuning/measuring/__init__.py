"""Candidates compiled, checked and timed, or simulated."""
