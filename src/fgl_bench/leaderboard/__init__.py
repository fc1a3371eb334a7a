"""The leaderboard: its protocol, cells and findings."""
