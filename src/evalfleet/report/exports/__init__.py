"""Runs as files for other programs: one module per format, and what they share. Described in docs/reference/exports.md."""
