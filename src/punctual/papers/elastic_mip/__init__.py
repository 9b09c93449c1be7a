"""Hu et al.: elastic training as a mixed-integer program, solved at each change."""
