"""Display of partitions, as text and as pictures."""
