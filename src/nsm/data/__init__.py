"""Data sets: where they are, and how they are downloaded, checked and read.

A data set is a module here with `FILES`, the files of its official download, `check(root)`, which reports what a data
directory contains, and a function that reads it.
"""
