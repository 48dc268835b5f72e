"""Runs the command line as ``python -m msprobe``."""

import sys

from msprobe.cli import main

sys.exit(main())
