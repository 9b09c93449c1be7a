"""Public aids for testing against Punctual: conformance kits, Hypothesis strategies and simulated plants."""
