"""Tasks of whole conversations: the user goes on after the first request, and every turn is judged."""
