"""Azure: settings, machine sizes, prices, quotas, the request bodies, and the calls that make and end VMs."""
