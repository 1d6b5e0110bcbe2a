"""Recording of traces: what each thread did in each step, and the conversion to `weft_trace`."""
