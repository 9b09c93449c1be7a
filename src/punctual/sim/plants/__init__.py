"""Simulated trainings under the real scheduler, each steered by a controller: under a CPU quota, and by a number of workers."""
