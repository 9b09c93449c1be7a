"""The simulated world: a virtual clock, hidden true rates, delays and failures around the very same scheduler."""
