"""What a store holds of a run, for the terminal and for artifacts: tables, and the last words of a command."""
