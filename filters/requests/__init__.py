"""What can be told of a request without a world: greetings, random keys, masked values, cues of difficulty, and topics."""
