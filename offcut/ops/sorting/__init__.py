"""Which elements of an axis come first: places of extremes, the greatest or least of them, all in order."""
