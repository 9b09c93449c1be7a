"""A tensor's own bytes, to be read from and written to without a copy."""

import ctypes

from torch import Tensor


def memory_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU; valid as long as the tensor lives."""
    return memoryview((ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr()))
