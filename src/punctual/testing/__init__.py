"""Public aids for testing against Punctual: conformance kits and Hypothesis strategies."""
