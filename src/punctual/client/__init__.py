"""Client of a service: methods and types of its HTTP API."""
