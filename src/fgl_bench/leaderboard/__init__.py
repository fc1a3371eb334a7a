"""The leaderboard: its protocol, the cells that were made under it, and what they show."""
