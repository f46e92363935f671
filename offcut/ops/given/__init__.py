"""What operators ask of what they are given, and the names of what they give."""
