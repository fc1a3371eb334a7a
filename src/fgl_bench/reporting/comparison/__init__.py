"""A user's own tables: runs of a folder, chosen, checked for comparability, tested and written in several formats."""
