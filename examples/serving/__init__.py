"""A model behind HTTP: requests that come together run as one batch, whatever its size, without padding.

`batching.py` is the file to read first, `server.py` puts it behind the Open Inference Protocol (version 2, JSON), `supervisor.py` runs several
processes, `load.py` is the load test: p50 and p99 of the same server by offcut and by onnxruntime. Both engines are an `InferenceSession`.

    offcut build encoder.onnx -o encoder.offcut
    python -m examples.serving encoder.offcut --port 8000
    python -m examples.serving.load encoder.onnx
"""
