"""Commands that a user stays in: a chat with a policy, and the viewer."""
