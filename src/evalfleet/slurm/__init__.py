"""Slurm as a backend of pools: a machine is a job that holds a pilot."""
