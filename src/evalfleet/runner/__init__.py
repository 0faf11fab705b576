"""The program on each host that executes attempts and outlives connections.

Standard library only, Python 3.8 or newer; nothing here imports the rest of evalfleet, because these files travel alone.
"""
