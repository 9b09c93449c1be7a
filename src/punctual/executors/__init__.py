"""Executors, which start, change and end jobs: one a module, all with the same protocol."""
