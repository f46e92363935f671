"""What a computation consists of, and all rooms share: sizes, expressions, the loop program, its text and meaning."""
