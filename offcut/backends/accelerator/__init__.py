"""Accelerators of matrix and vector units behind queues: so far microkernels, declared as data."""
