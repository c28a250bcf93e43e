"""Tasks and tokens that stages train on."""
