"""An endpoint of our own in front of a model's: forwards, counts, and tells at once what goes wrong."""
