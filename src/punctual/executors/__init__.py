"""Effects on jobs: one executor a module, all with the same protocol."""
