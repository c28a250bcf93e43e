-- Worlds that were compiled from a spec of the user's own: by name, so that whoever reads the store can compile them again.
CREATE TABLE worlds (part_id VARCHAR, world VARCHAR, domain VARCHAR, spec VARCHAR);
