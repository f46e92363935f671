"""offcut inside TVM: its loops cut by our partitioner, its operators served by our kernels.

Importing this registers the pipeline ``offcut``: ``tvm.compile(module, target, tir_pipeline="offcut")``.
"""

from offcut.core.extras import imports

with imports("offcut.plugins.tvm", "tvm"):
    from offcut.plugins.tvm.export_tir import write
    from offcut.plugins.tvm.import_tir import Reading, read
    from offcut.plugins.tvm.packed_function import register_kernel, to_packed_function
    from offcut.plugins.tvm.relax_dispatch import RULES, dispatch_pass
    from offcut.plugins.tvm.tir_pass import (
        Report,
        lowering_passes,
        partition_pass,
        pipeline,
        register,
    )

report = register()

__all__ = [
    "RULES",
    "Reading",
    "Report",
    "dispatch_pass",
    "lowering_passes",
    "partition_pass",
    "pipeline",
    "read",
    "register",
    "register_kernel",
    "report",
    "to_packed_function",
    "write",
]
