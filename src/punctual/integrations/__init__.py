"""Adapters for training libraries: each module needs its library, and is loaded by its user only.

They translate a library's hooks into what tracking has: steps, phases, losses, requests to stop.
"""
