"""Environments: what an agent sees and acts on in one attempt."""
