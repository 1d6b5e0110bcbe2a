"""GPUs as devices, through CuPy.

Nothing here imports CuPy before a session finds that it is installed. `residency.py` defines GPU
values, and which values stay in the host's memory. `hardware.py` is one GPU of the process with its
streams, pool and copies. `base_device.py` is the view of a session, on which compiled functions and
graphs build; `session_device.py` adds them. `device.py` registers the device type. `launch.py`
wraps each run of a kernel; the kernels are in `kernels/`. `generated.py` instantiates those in CUDA
from the sources in `cuda/`; `cudnn.py` contains those that use cuDNN.
"""
