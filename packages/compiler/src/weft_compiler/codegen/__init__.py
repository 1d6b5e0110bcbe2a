"""Code generation: from programs to machine code, through LLVM."""
