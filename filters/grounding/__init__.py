"""From text to frame: world, intent and slots, or why no world can execute it."""
