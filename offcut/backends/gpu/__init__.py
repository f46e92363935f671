"""GPUs: microkernels as data, an executor of programs of units on arrays, and their text in CUDA C++."""
