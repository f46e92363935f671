"""Whole arrays between stages: staged, converted, or kept near in shared loops."""
