"""Figures from a journal's messages; the same functions for live and simulated runs."""
