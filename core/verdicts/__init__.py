"""What the differences of two runs mean: errors, local bounds, taint, verdicts, sources and the story they tell."""
