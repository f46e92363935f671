"""Where the values between kernels lie, and how calls name them: columns of numbers, by the values of extents."""
