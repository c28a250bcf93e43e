"""Which conversations a run makes next: coverage per token, the rarity controller, a policy's failures, weights of sources."""
