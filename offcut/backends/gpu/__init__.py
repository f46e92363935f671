"""GPUs: so far microkernels, declared as data."""
