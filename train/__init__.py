"""Training: stages, the cascade, evaluation and the gate."""
