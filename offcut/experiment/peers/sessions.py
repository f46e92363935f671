"""Sessions of onnxruntime and options of OpenVINO, wherever they are measured: for the latency of single calls, on a number of threads."""

from __future__ import annotations

from typing import Any


def onnxruntime_session(onnxruntime: Any, model: bytes, threads: int) -> Any:
    """Return a session on the processor with the default optimizations, which logs fatal errors alone.

    onnxruntime  the module
    model        the bytes of a file of ONNX, or its path
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def openvino_options(threads: int, precision: str = "f32") -> dict[str, Any]:
    """Return the options of a compiled model: one stream, hinted at latency.

    precision  that it computes in: ``f32`` or ``bf16``
    """
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision,
    }
