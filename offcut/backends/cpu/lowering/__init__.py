"""Loop programs to LLVM IR: covers, vectors, memory."""
