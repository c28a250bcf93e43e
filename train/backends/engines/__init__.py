"""Stages that verl or ROLL trains: the backends, and what the engines leave behind."""
