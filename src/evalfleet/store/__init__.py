"""Durable state: runs, tasks, attempts, events, requests."""
