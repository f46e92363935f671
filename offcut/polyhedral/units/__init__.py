"""What may run on different units: what statements touch, which loops carry nothing, where units must meet."""
