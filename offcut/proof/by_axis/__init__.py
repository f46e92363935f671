"""Coverage of a rectangle, axis by axis: what a cut runs in one dimension, for every extent."""
