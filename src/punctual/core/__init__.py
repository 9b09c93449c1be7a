"""The decision core: pure functions and values, with no clock, no I/O and no randomness of its own."""
