"""The steps of the funnel, one file each."""
