"""What a loop program means: its reference interpretation in numpy, and the values of expressions."""
