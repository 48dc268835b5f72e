"""The framework-neutral heart of msprobe: records, graph, run format, matching and verdicts."""
