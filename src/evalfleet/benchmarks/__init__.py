"""Benchmarks: which tasks there are, how one is run, and how its verdict is read."""
