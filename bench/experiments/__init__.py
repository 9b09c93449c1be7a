"""Experiments of published papers, run again; one file each, with a function `run`."""
