"""Keras' layers, written out in NumPy float64: one file for each family. They share no code with the conversion."""
