"""Data sets: where they lie, how they get there, whether they are whole, and how they are read.

A data set is a module here with `FILES`, what its official download consists of, `check(root)`, which says what was
found in a data directory, and a function that reads it.
"""
