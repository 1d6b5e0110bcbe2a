"""Programs for GPUs: the same IR, compiled to a sequence of kernel launches."""
