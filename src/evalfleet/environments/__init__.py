"""What an agent sees and touches: the world of one attempt."""
