"""Trends: a run in the form that heat maps and series are asked from, kept in RUN/index as a cache."""
