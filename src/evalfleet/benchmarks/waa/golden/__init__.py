"""The golden image of WAA: a prepared disk of Windows, made once and used by every container."""
