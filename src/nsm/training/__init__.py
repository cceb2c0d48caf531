"""Training: from a task and a machine to a run directory that can be tested, resumed and trusted."""
