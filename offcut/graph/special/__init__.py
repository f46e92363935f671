"""Functions of one element that are composed of ours: inverses, gamma functions, tails of the error function."""
