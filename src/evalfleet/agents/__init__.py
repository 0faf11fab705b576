"""What acts in an environment: observation in, actions out."""
