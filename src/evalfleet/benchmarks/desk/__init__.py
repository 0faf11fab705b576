"""The benchmark `desk`: tasks on real applications of a Linux desktop, each written down in one JSON file."""
