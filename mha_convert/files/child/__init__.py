"""Processes of our own: ``command`` starts them isolated, ``messages`` is what both ends say, ``process`` our end.

These import nothing large, as the first process is started before anything else is loaded; ``arrays`` needs NumPy.
"""
