"""What machines and reports draw with: one style, and rows of heads over time."""
