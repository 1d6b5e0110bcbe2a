"""Elementary functions as branch-free polynomials, which LLVM vectorizes."""
