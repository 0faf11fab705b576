"""Where the files of ended attempts are kept: folders of the home, or object storage with a cache on this machine."""
