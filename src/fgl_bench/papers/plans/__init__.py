"""What each paper's tables consist of: one module per paper, with a ``PAPER``."""
