"""Azure on loopback: the real clients talk to it over HTTP, and its VMs are hosts that answer SSH.

One process, one port. Each type of resource is a file with its own routes over the shared `EmulatorContext`; further services
join by adding theirs. Nothing here is imported by the rest of the product.
"""
