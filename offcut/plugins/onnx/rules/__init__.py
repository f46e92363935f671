"""What operators of ONNX are, among ours."""
