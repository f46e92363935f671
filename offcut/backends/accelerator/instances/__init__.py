"""Instances of leaves in the order of the stream, and when each of them ends, before instructions are issued."""
