"""Properties of a request that need no world: greetings, random keys, masked values, cues of difficulty, and topics."""
