"""Training with a number of workers that changes while it runs and does not affect the result."""
