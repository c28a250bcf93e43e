-- Rows that were dropped because a held-out set has them: which, its row there, and how that was found (near: wording, semantic: vector).
CREATE TABLE contaminated (part_id VARCHAR, run VARCHAR, query_id VARCHAR, held_out VARCHAR, held_out_row BIGINT, found_by VARCHAR, similarity DOUBLE);
-- How near the pool's rows come to every held-out set: rows by the similarity with the nearest question, in bins of equal width.
CREATE TABLE nearness (part_id VARCHAR, run VARCHAR, held_out VARCHAR, found_by VARCHAR, bin_from DOUBLE, rows BIGINT);
