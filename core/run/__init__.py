"""The run on disk: its layout, the writer that a training process feeds, the reader of everything else."""
