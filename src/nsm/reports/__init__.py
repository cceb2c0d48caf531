"""What was measured and what machines did, for people: figures, tables beside the paper's, the execution viewer."""
