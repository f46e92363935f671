"""Two programs as sets of statement instances: which is which, and whether reads see the same values."""
