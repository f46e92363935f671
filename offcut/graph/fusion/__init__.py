"""Which nodes become one kernel, and what that kernel computes."""
