"""The program on each host that runs attempts and outlives connections.

Standard library only, Python 3.8 or newer; nothing here imports the rest of evalfleet, because only these files are copied to hosts.
"""
