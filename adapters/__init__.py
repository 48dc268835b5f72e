"""What watches a framework: one adapter each, imported only on use."""
