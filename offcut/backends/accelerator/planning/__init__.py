"""From a computation to the loop program of a machine of queues: operations one by one, copies, tiles."""
