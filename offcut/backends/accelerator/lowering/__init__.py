"""From a loop program with covers to a stream of instructions for the sizes of a call."""
