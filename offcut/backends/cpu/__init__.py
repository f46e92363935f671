"""The CPU: a planned program to machine code, and what that needs of the processor."""
