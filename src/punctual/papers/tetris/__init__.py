"""Tetris: packing of several kinds of hardware."""
