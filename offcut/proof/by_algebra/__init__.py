"""Proofs that two computations give equal elements in exact arithmetic, at all sizes."""

from offcut.proof.by_algebra.equality import show_equal
from offcut.proof.by_algebra.terms import NotShown

__all__ = ["NotShown", "show_equal"]
