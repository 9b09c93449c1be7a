"""Identifiers. Distinct types, so that a job cannot be passed where a node is meant."""

from typing import NewType

JobId = NewType("JobId", str)
NodeId = NewType("NodeId", str)
