-- Versions of the tree that queries are labelled with, position 1, 2, 3 ...: the last one counts. taxonomy_id: hash of the tree; origin: how it
-- came from its parent (built_in, induced, refined, edited); tree: as YAML; statistics: JSON (agreement, share of other, rows a node).
CREATE TABLE taxonomies (part_id VARCHAR, position INTEGER, taxonomy_id VARCHAR, parent_id VARCHAR, origin VARCHAR, tree VARCHAR, statistics VARCHAR);
