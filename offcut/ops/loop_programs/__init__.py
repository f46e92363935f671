"""Operators that are loop programs, as what one iteration reads of the one before is no tensor of expressions."""
