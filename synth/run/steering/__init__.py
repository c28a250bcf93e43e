"""What steers the conversations of a run: coverage per token, the rarity controller, a policy's failures, weights of sources."""
