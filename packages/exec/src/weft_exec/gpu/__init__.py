"""GPUs as devices, on CuPy.

Nothing here imports CuPy before a session finds that it is installed. What a value on a GPU is,
and which values stay in the host's memory, is in `residency.py`; one GPU of the process with its
streams, pool and copies in `hardware.py`; what a session sees of it in `device.py`; what happens
around each run of a kernel in `launch.py`; the kernels in `kernels/`. Those in CUDA are made by
`generated.py` from the sources in `cuda/`; what goes by cuDNN is in `cudnn.py`.
"""
