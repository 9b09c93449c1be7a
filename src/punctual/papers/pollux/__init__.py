"""Pollux: batch size and devices chosen for goodput."""
