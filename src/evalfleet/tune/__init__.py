"""The search for good parameters: the space, the strategies that propose points, and what counts as better. Pure: no I/O, no clock."""
