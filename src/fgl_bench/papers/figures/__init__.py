"""What each paper's figures consist of: one module per paper, with a function ``draw``."""
