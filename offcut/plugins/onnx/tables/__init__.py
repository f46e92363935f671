"""What each operator is: of ONNX, of small integers, of onnxruntime."""
