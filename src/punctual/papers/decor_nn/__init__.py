"""DECOR-NN: feedback control of the processors of a training, so that it ends at its deadline."""
