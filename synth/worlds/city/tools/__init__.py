"""The ten tools of the city."""
