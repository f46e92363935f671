"""Rules between graphs that compute the same, and the search for the cheapest graph that they lead to."""
