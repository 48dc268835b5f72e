"""One small model trained in many parallel layouts, by real processes with gloo."""
