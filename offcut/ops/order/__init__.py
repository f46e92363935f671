"""Which elements are the greatest, or the least, and in which order all are."""
