"""What measures a pair of tensors or of statistics: one comparator each."""
