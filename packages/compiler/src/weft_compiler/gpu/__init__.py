"""Programs for GPUs: the same language, as kernels that are launched one after the other."""
