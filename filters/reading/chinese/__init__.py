"""Reads Chinese requests in any world: by the values, the words beside slots, and what is left unread. No segmenter is needed."""
