"""offcut inside TVM: its loops cut by our partitioner, its operators served by our kernels.

Importing this registers the pipeline ``offcut``: ``tvm.compile(module, target, tir_pipeline="offcut")``.
"""

from offcut.core.extras import imports

with imports("offcut.plugins.tvm", "tvm"):
    from offcut.plugins.tvm.calling import function_of, registered
    from offcut.plugins.tvm.cutting import Report, lowered, partitioned, pipeline, register
    from offcut.plugins.tvm.operators import RULES
    from offcut.plugins.tvm.reading import Reading, read
    from offcut.plugins.tvm.serving import served
    from offcut.plugins.tvm.writing import write

report = register()

__all__ = [
    "RULES",
    "Reading",
    "Report",
    "function_of",
    "lowered",
    "partitioned",
    "pipeline",
    "read",
    "register",
    "registered",
    "report",
    "served",
    "write",
]
