"""ONNX files as models: `from_onnx`. The package onnx is imported when it is first called."""

from offcut.plugins.onnx.model import OnnxModel, from_onnx

__all__ = ["OnnxModel", "from_onnx"]
