"""``python -m benchmarks.precision``: the small sample, or whatever the options ask for."""

import sys

from benchmarks.precision.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["--quick"]))
