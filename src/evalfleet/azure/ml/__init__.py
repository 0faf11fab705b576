"""Azure Machine Learning as a backend of pools: one job per node, or compute instances."""
