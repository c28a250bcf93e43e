"""Sessions at a prompt: chat with a policy, or try a world."""
