"""One file format each: the file's name is the format's."""
