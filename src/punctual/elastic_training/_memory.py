"""Access to a tensor's own bytes without a copy."""

import ctypes

from torch import Tensor


def memory_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the CPU; valid as long as the tensor lives."""
    return memoryview((ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr()))
