"""What the CPU decides of a program: cuts, microkernels, lanes, predicted time; and the proof of it."""
