"""Benchmarks: which tasks exist, how a task is run, and how its verdict is read."""
