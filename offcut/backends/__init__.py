"""Back ends: a loop program to code that runs, and what it may run on, as data."""
