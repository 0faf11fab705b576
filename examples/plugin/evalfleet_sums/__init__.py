"""A plugin for evalfleet: the benchmark `sums` and the agent `adder`."""
