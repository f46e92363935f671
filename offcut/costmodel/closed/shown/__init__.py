"""Formulas of a cost, for people: as a page, and as a picture."""
