"""What each paper concludes, as printed, and what its cells give: one module per paper, with ``findings``."""
