"""Schedules by hand: the primitives of Halide and TVM on stages and loops, and what they lower to."""
