"""Cluster allocation: one policy a file, each turning a snapshot into a plan."""
