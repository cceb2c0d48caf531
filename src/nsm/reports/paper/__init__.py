"""Every table and figure of the paper beside ours."""
