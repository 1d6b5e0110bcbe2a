"""From programs to machine code, through LLVM."""
