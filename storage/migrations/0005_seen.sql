-- What was read in earlier runs, in the order in which it was first read: a later log is deduplicated against it. files: JSON, a file a row:
-- content hash, name, rows. parts: JSON, ids of its parts by table. first_row: how many rows the segments before it have read. (seen and bands are views over Parquet parts.)
CREATE TABLE segments (part_id VARCHAR, segment VARCHAR, recipe VARCHAR, position INTEGER, first_row BIGINT, files VARCHAR, parts VARCHAR);
