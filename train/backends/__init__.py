"""What runs a training stage: this machine, a Ray cluster, Slurm, Kubernetes, verl, ROLL."""
