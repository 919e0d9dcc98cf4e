"""LoopNest → LLVM IR text: statements, expressions, memory access, vectors."""
