"""LLVM IR as text: functions, integers, elements of vectors, mathematical functions, code that is written once."""
