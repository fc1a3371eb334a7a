"""Each paper's printed conclusions, and what its cells give: one module per paper, with ``findings``."""
