"""Two programs side by side, as texts: whether one is the other with loops cut, for all sizes."""
