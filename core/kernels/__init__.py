"""One pass over memory, in C, for all that a record keeps of a tensor; see ``source/``.

The definitions, and the path where no library was built, are ``core.statistics``, ``core.sketches`` and
``core.checksums`` in NumPy: these functions answer None then.
"""

from msprobe.core.kernels.arrays import measure_array, measure_memory
from msprobe.core.kernels.library import available, status, without

__all__ = ["available", "measure_array", "measure_memory", "status", "without"]
