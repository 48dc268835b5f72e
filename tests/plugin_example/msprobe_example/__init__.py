"""An example of a package that adds to msprobe; ``plugin`` is where to start reading."""
