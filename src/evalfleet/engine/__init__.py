"""Drives runs: places tasks, launches attempts, judges their ends and keeps what they leave."""
