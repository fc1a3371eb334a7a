"""Making the cells of the leaderboard."""
