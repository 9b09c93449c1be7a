"""The client of a service: what its HTTP API offers, as methods and types."""
