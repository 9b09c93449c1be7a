"""Training whose number of workers changes while it runs, and whose result does not depend on it."""
