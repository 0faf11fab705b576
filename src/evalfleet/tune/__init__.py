"""Search of good parameters: the space, who proposes what to try, and what counts as better. Pure: no I/O, no clock."""
