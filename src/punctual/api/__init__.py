"""The service: HTTP to and from a host, who may do what, and a client for programs. It decides nothing about jobs."""
