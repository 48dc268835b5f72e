"""One pass over memory, in C, for all that a record keeps of a tensor or that is compared of two; see ``source/``.

The definitions, and the path where no library was built, are ``core.statistics``, ``core.sketches``, ``core.checksums``
and ``core.measures`` in NumPy: these functions answer None then.
"""

from msprobe.core.kernels.arrays import measure_array, measure_memory
from msprobe.core.kernels.library import available, status, without
from msprobe.core.kernels.pairs import measure_pair

__all__ = ["available", "measure_array", "measure_memory", "measure_pair", "status", "without"]
