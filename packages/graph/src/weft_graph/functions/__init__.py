"""Functions: reusable subgraphs, in the library of their graph (paper, section 10)."""
