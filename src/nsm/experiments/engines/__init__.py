"""Where the runs of a campaign are trained: on this machine, or on a Ray cluster."""

ENGINES = ("local", "ray")
