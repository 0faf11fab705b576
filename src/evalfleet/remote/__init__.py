"""Another machine's server, used from this one: which servers there are, and the operations over its HTTP API."""
