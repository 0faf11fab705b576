"""The commands of `evalfleet study`."""
