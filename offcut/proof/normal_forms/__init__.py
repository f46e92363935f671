"""Forms in which two programs can be compared: each a program in, one that computes the same out."""
