"""What answers a chat request."""
