"""Generators of traces, one for each file, which has its name."""
