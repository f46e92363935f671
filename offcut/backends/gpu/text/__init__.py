"""The text of programs of units in CUDA C++."""

from offcut.backends.gpu.text.kernels import cuda_kernels, cuda_text

__all__ = ["cuda_kernels", "cuda_text"]
