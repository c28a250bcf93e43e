"""Stages that ROLL trains: the rendered files, and the adapter that plays our worlds in ROLL's process."""
