"""Progress of a training, read from its output: text in, belief out."""
