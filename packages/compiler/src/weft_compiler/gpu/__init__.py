"""Programs for GPUs: the same IR, compiled to kernels that are launched in sequence."""
