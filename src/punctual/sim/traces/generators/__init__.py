"""One generator each: the file's name is the generator's."""
