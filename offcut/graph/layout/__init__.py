"""Where the values of a graph lie in memory, and in which order of axes."""
