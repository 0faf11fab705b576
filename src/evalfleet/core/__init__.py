"""Pure decisions: no I/O, no clock, no global randomness. `now` and `rng` are arguments; only the engine acts."""
