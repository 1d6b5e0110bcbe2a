"""`wf.signal`: Fourier and cosine transforms, windows, frames and spectral features."""

from weft import _lazy
from weft_graph.ops.fft import *
from weft_graph.ops.fft import (
    fftshift as fftshift,
    ifftshift as ifftshift,
    irfft as irfft,
    irfft2d as irfft2d,
    irfft3d as irfft3d,
    rfft as rfft,
    rfft2d as rfft2d,
    rfft3d as rfft3d,
)
from weft_graph.signal.cosine import *
from weft_graph.signal.framing import *
from weft_graph.signal.mel import *
from weft_graph.signal.spectra import *
from weft_graph.signal.windows import *

_lazy.hint(__name__)
