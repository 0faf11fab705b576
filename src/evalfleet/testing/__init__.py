"""Contracts for those who write a backend, cloud, benchmark, agent, environment, strategy or database of their own. Needs pytest."""
