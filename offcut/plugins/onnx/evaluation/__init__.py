"""The nodes of a graph, one after the other: evaluated, taken by a rule, or walked into."""
