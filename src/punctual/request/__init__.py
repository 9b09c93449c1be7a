"""Convert a user's options, files and HTTP bodies to the scheduler's specifications."""
