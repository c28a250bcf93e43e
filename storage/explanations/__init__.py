"""What an item of a store is: conversation and plan, verdict, tags, origin, as text for a terminal."""
