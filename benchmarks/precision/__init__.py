"""PrecisionBench: does a tool that compares two trainings name the place of a fault, and stay quiet without one?

``faults`` plants a known fault in one of two equal trainings, ``clean`` makes pairs that differ by rounding only,
``scorer`` counts how often the first place named is the right one. Where a fault must be found is written down
before anything is recorded.
"""
