"""The graph that a file becomes, as far as it is made, and what is known of its sizes."""
