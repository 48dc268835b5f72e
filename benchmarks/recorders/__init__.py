"""Training under a recorder: the processes that ``benchmarks.recording`` runs in turns."""
