"""Windows of images: convolutions, pooling, and images of another size."""
