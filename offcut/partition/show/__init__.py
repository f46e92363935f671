"""Partitions shown: in words, and as pictures."""
