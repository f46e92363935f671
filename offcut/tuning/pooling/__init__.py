"""Candidates measured by the workers of a pool."""
