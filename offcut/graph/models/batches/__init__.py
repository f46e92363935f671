"""Parts of a batch: which kernels run for one at a time, what that moves, and where values lie then."""
