"""Tasks: from a frame to an admitted task, and the verdict on a conversation that tried it."""
