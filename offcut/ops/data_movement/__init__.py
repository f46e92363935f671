"""The same elements elsewhere: rearranged, copied, padded, and named by integers."""
