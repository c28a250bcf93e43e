"""Reads requests in any world from what the world declares: a request becomes a frame with a calibrated confidence.

English is read by `reader.py`, Chinese by `chinese/`; `world_reader.py` reads each text in its language.
"""
