"""The closed form: what a loop program costs on a machine, from exact counts, for any sizes or for given ones."""
