"""Tasks: what a label is of, how masks are drawn, what the head is and which metric counts."""
