"""The map: rows of a store as points, where near means similar words.

`map_rows.py` says what the rows are, `text_vectors.py` turns texts into vectors, and `map_layout.py` vectors into places. A process
(`map_process.py`) writes the places of all rows (`map_places.py`) and the file of points (`map_points.py`), from which `map_index.py`
answers the pages.
"""
