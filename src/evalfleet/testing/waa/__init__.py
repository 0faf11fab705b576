"""A stand-in for Windows Agent Arena and Docker, for machines that have neither: real programs, real processes.

`python -m evalfleet.testing.waa DIR` sets one up and says how to use it.
"""
