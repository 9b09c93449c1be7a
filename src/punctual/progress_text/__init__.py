"""How far a training is, read from what it writes: text in, belief out."""
