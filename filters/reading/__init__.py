"""Reads requests in any world from what the world declares: a request becomes a frame with a calibrated confidence."""
