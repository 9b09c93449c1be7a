"""Adapters for the libraries that people train with: each module needs its library, and is loaded by whoever names it.

They translate a library's hooks into what the client has: steps, phases, losses, requests to stop.
"""
