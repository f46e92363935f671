"""Loops that threads share: which may be, the code of each thread, and the pool that runs it."""
