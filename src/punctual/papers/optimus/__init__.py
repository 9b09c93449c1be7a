"""Optimus: marginal gains of workers and parameter servers, from speed and convergence measured online."""
