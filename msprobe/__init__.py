"""The front door of msprobe: record a run, compare two runs, open a run."""
