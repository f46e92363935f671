"""Regions as kernels: what is asked for, on which target, ahead of time or from the cache."""
