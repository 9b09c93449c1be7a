"""Estimators of speed and of convergence, fitted to a job's reports."""
