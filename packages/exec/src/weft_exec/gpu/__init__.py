"""GPUs as devices, through CuPy.

Nothing here imports CuPy before a session has found that it is installed. `residency.py` defines
which values stay in the host's memory. `hardware.py` is one GPU of the process with its streams,
pool and copies. `base_device.py` is a GPU as a session sees it; `session_device.py` adds compiled
functions and graphs to it. `device.py` registers the device type. `launch.py` wraps each run of a
kernel; the kernels are in `kernels/`. `generated.py` instantiates the CUDA kernels from the sources
in `cuda/`; `cudnn.py` contains those that use cuDNN.
"""
