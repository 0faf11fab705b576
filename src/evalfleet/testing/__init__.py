"""Contracts for those who write a backend, cloud, benchmark, agent, environment or database of their own. Needs pytest."""
