"""The service: HTTP access to a host, with tokens and roles. It decides nothing about jobs."""
