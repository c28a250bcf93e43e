"""What runs a training stage: this machine, a Ray cluster, verl, ROLL."""
