"""A quantised ResNet-18 with random weights: its convolutions on an accelerator, the rest on the CPU."""
