-- Of rows without a frame: the tool that is nearest to them (a cosine), and the cluster that holds it; null where none is near.
ALTER TABLE frames ADD COLUMN cluster_id VARCHAR;
ALTER TABLE frames ADD COLUMN tool_id VARCHAR;
ALTER TABLE frames ADD COLUMN nearness DOUBLE;
