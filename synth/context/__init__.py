"""The environment's context: one layer between a world and the policy, and what it adds to tools and results."""
