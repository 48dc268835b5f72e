"""What shows a comparison: one visualizer each."""
