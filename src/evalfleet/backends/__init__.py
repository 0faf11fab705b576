"""Adapters that get workers and run attempts there."""
