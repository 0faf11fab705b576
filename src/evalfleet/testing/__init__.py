"""Contracts for those who write a store, backend, cloud, benchmark, agent, environment or strategy of their own. Needs pytest."""
