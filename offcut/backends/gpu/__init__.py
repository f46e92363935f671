"""GPUs: microkernels as data, and an executor of programs of units on arrays."""
