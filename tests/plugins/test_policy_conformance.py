"""Every registered policy of ours runs the conformance kit."""

from typing import Any

from punctual import registry
from punctual.core.protocols import Policy
from punctual.testing.policy_kit import PolicyConformance


def _conformance(policy: type[Any]) -> type[PolicyConformance]:
    def make(self: PolicyConformance) -> Policy:
        made: Policy = policy()
        return made

    return type(f"Test{policy.__name__}", (PolicyConformance,), {"make": make, "__module__": __name__})


for _name in registry.names("policies"):
    _suite = _conformance(registry.load("policies", _name))
    globals()[_suite.__name__] = _suite


def test_the_policies_are_found() -> None:
    assert "proportional" in registry.names("policies")
