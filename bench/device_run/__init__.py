"""A run on a GPU that is there for minutes: all is compiled before, and what runs there needs numpy and the driver alone.

`prepare` needs all of offcut, and no GPU; every other file needs numpy, `offcut.backends.gpu.driver` and `offcut.errors`.
"""
