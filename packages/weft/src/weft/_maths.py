"""Names of `weft` that load with the first of them: Fourier transforms."""

from weft_graph.ops.fft import *
