"""The paper as data: its machines, its runs, its published numbers."""
