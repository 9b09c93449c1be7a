"""Readers of file formats, one for each file, which has the format's name."""
