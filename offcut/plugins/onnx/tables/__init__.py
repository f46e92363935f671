"""Which rule takes each operator: of ONNX, of onnxruntime, and those on small integers that stand for floats."""
