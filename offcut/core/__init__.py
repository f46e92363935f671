"""What is computed: sizes, expressions, tensors, microkernels as data, the loop program."""
