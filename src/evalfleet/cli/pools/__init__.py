"""The commands of `evalfleet pool`, one per file, and what they share (`choosing`)."""
