"""Figures of the papers: one module per paper, with a function ``draw``."""
