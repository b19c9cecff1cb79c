"""A whole model as the text of ``model.py``."""
