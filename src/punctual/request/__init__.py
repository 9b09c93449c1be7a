"""From what a user writes, in options, files and HTTP bodies, to what the scheduler runs."""
