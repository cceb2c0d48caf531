"""What machines and reports plot with: one style, and rows of heads over time."""
