"""Where onnxruntime has its errors."""

from offcut.onnxruntime.capi import onnxruntime_pybind11_state

__all__ = ["onnxruntime_pybind11_state"]
