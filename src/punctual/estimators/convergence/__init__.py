"""Convergence models: one a file, each telling from the losses seen how many steps are left until a goal."""
