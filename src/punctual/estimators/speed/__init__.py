"""Performance models: one a file, each learning how fast a job trains with which allocation."""
