"""Information about how this library was built."""

from __future__ import annotations

__all__ = ["get_build_info"]

from weft_exec.test_case import is_built_with_cuda, is_built_with_rocm


def get_build_info() -> dict[str, bool]:
    """Return the accelerators that this installation supports.

    Packages contain no compiled GPU code, so there is no compiler version to report. A GPU is used
    if its libraries are installed.

    Returns: "is_cuda_build", "is_rocm_build" and "is_tensorrt_build".

    Examples:
      >>> wf.sysconfig.get_build_info()["is_tensorrt_build"]
      False
    """
    return {
        "is_cuda_build": is_built_with_cuda(),
        "is_rocm_build": is_built_with_rocm(),
        "is_tensorrt_build": False,
    }
