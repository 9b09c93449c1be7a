"""Estimators of speed and of convergence, fitted to what a job reports."""
