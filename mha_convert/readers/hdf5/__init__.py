"""HDF5 as readers need it: a file as plain data, and compressed members that are inflated where they are read."""
