"""What a person talks to at a prompt: a policy, or a world."""
