"""The CPU: row-block microkernels, loop programs to LLVM IR, object code, calls."""
