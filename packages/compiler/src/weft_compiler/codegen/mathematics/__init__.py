"""Elementary functions as polynomials without branches, which LLVM vectorises with their loops."""
