"""Drawings of a study. Matplotlib is imported when something is drawn."""
