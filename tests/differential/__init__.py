"""The differential net: random programs, cut and compiled, against an interpreter that shares no code with offcut.

`kinds` writes programs from a seed, `cuts` says how they are cut and where they run, `meaning` says
what they compute, `checking` compares in a process of its own (`workers`), `reducing` makes what
fails small, and ``python -m tests.differential`` does all of it.
"""
