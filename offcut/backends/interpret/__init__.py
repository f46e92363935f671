"""The reference interpreter as a target: any program, at the speed of numpy, by what it means."""
