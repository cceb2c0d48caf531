"""Names that commands and configurations take alike, known without importing what they stand for."""

PRESETS = ("default", "paper", "authors")
BACKENDS = ("auto", "reference", "fused")
