"""HDF5, read in a process of its own: ``process`` is this end, ``worker`` and ``structure`` run in the other.

It imports nothing large, as the process is started before anything else is loaded.
"""
