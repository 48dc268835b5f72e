"""Benchmarks of msprobe: what it finds, and how fast."""
