"""LLVM IR as text: values and blocks, memory access in vectors, shuffles, 16-bit floats and bytes."""
