"""The front end: tensors, computations, recurrences and microkernels, as a user describes them."""
