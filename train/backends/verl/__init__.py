"""Stages that verl trains: the rendered files, and the adapter that plays our worlds in verl's process."""
