"""What a call takes on a machine of queues: instance by instance, and as formulas of that."""
