"""Commands that say what data bought."""
