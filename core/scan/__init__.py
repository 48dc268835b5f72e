"""Scanning: what is wrong in one run, without a reference to compare it with."""
