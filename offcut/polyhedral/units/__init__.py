"""What may run on different units: what statements touch, which loops carry nothing, what each unit has for itself."""
