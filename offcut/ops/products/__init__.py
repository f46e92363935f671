"""Sums of products: of matrices, of layers, of queries and keys; and what follows a sum."""
