"""What a program may ask of how this library was built."""

from __future__ import annotations

__all__ = ["get_build_info"]

from weft_exec.test_case import is_built_with_cuda, is_built_with_rocm


def get_build_info() -> dict[str, bool]:
    """Which accelerators this installation can use.

    Nothing is compiled into the packages, so that there is no compiler and no version of one to
    tell: a GPU is used where the libraries for it are installed.

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
