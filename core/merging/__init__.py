"""The local records of all ranks become records of the whole model: exact where the layout is known, else not known."""
