"""Parts of a graph as machine code: a loop-nest IR, the passes over it, and LLVM behind it."""
