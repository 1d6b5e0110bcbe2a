"""Compilation of parts of a graph: a loop-nest IR, passes over it, and LLVM code generation."""
