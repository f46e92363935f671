"""The microkernels of the CPU, a family a file, and the list of them."""
