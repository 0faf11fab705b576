"""The commands of `evalfleet pool`, and what they share (`shared`)."""
