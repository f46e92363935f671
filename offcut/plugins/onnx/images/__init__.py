"""What operators of ONNX on images are, among ours: windows, sampling, resizing; volumes and sequences as images."""
