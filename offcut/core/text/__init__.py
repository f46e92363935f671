"""The text form of loop programs: printed, and read back."""
