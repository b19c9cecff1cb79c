"""HDF5, read in a process of its own: ``process`` is this end, ``worker`` and ``structure`` run in the other."""
