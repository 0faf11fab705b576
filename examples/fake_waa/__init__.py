"""A stand-in for Windows Agent Arena and Docker, for machines that have neither: real programs, real processes.

`python -m examples.fake_waa DIR`, in the root of a checkout, sets one up and says how to use it.
"""
