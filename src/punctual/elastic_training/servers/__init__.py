"""Training with parameter servers; loaded only with `--servers`."""
