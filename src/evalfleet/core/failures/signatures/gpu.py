"""What CUDA and its libraries say. A GPU without memory is the task's; a driver or device that fails is not.

An illegal access, a failed assertion on the device and a number of a GPU that is not there follow from the program.
"""

from __future__ import annotations

import re

from evalfleet.model import Kind

_NAMES = re.compile(
    r"RuntimeError|AcceleratorError|(?:torch|cupy|cupy_backends|pycuda|numba|jax|jaxlib|tensorflow|pynvml|triton)\b.*|Exception|OSError"
)
_MEMORY = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED"
    r"|RESOURCE_EXHAUSTED: Out of memory|HIP out of memory"
)
_DRIVER = re.compile(
    r"CUDA driver version is insufficient|no CUDA-capable device is detected|No CUDA GPUs are available"
    r"|Found no NVIDIA driver|NVIDIA driver on your system is too old|CUDA-capable device\(s\) is/are busy or unavailable"
    r"|CUDA error: (?:unspecified launch failure|unknown error|uncorrectable (?:NVLink |ECC )?error|uncorrectable NVLink"
    r"|system (?:not yet initialized|has unsupported)|initialization error|driver shutting down|hardware stack error|device not ready"
    r"|the launch timed out|device kernel image is invalid|operation not supported on global)"
    r"|CUDA unknown error|CUDA_ERROR_(?:NO_DEVICE|SYSTEM_\w+|ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|LAUNCH_FAILED|UNKNOWN|NOT_INITIALIZED"
    r"|DEVICE_UNAVAILABLE|COMPAT_NOT_SUPPORTED\w*|HARDWARE_STACK_ERROR)\b|cudaError(?:InsufficientDriver|NoDevice|ECCUncorrectable|SystemNotReady"
    r"|SystemDriverMismatch|DevicesUnavailable|LaunchFailure)\b|Driver/library version mismatch|GPU is lost|has fallen off the bus"
    r"|NVIDIA-SMI has failed because it couldn't communicate|Unable to determine the device handle for GPU"
)


def kind_of(name: str, text: str) -> Kind | None:
    if not _NAMES.fullmatch(name):
        return None
    if name.endswith("OutOfMemoryError") and "." in name:
        return Kind.OUT_OF_MEMORY
    return of_words(text)


def of_words(text: str) -> Kind | None:
    if _MEMORY.search(text):
        return Kind.OUT_OF_MEMORY
    return Kind.ENVIRONMENT_FAILED if _DRIVER.search(text) else None
