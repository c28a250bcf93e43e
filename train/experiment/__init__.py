"""The diversity experiment, part by part; `train/diversity_experiment.py` puts them together."""
