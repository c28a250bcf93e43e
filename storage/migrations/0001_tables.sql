-- The catalogue: everything small. Bulky tables are Parquet parts under lake/, seen through views that `Store` makes.
-- Append only: a row is never updated. Every table's rows belong to a part, whose id decides whether they are already there.
CREATE TABLE parts (part_id VARCHAR PRIMARY KEY, table_name VARCHAR NOT NULL, path VARCHAR, rows BIGINT NOT NULL, content_hash VARCHAR NOT NULL, committed_at TIMESTAMPTZ NOT NULL);
CREATE TABLE migrations (version INTEGER PRIMARY KEY, name VARCHAR NOT NULL);
-- Rows of a lake part whose key an earlier committed part already holds: the views leave them out.
CREATE TABLE shadowed (table_name VARCHAR, part_id VARCHAR, key VARCHAR);

-- synthesis
CREATE TABLE tools (part_id VARCHAR, tool_id VARCHAR, server VARCHAR, name VARCHAR, description VARCHAR, domain VARCHAR, world VARCHAR, parameters VARCHAR, output VARCHAR, changes_state BOOLEAN);
CREATE TABLE clusters (part_id VARCHAR, cluster_id VARCHAR, domain VARCHAR, world VARCHAR, tool_ids VARCHAR[], edges VARCHAR, rank INTEGER);
CREATE TABLE blueprints (part_id VARCHAR, blueprint_id VARCHAR, cluster_id VARCHAR, world VARCHAR, world_seed BIGINT, domain VARCHAR, mode_family VARCHAR, complexity_band VARCHAR, round INTEGER, status VARCHAR, reason VARCHAR, spec VARCHAR);
CREATE TABLE diversity (part_id VARCHAR, run VARCHAR, round INTEGER, metric VARCHAR, value DOUBLE, sd DOUBLE, n INTEGER);

-- the funnel: one row a step; rows_in = kept + dropped, and kept of a step = rows_in of the next
CREATE TABLE funnel (part_id VARCHAR, run VARCHAR, position INTEGER, step VARCHAR, rows_in BIGINT, kept BIGINT, dropped BIGINT, reasons VARCHAR, seconds DOUBLE, size_bytes BIGINT);
CREATE TABLE frames (part_id VARCHAR, run VARCHAR, query_id VARCHAR, frame_id VARCHAR, world VARCHAR, intent VARCHAR, leaf VARCHAR, slots VARCHAR, combination VARCHAR, shape VARCHAR, quality DOUBLE, difficulty INTEGER, s_tool INTEGER, s_chain INTEGER, s_constraints INTEGER, stratum_rank INTEGER, status VARCHAR, reason VARCHAR);

-- tasks, their tags, and what is made of them
CREATE TABLE tasks (part_id VARCHAR, task_id VARCHAR, query_id VARCHAR, blueprint_id VARCHAR, frame_id VARCHAR, world VARCHAR, world_seed BIGINT, intent VARCHAR, leaf VARCHAR, language VARCHAR, division VARCHAR, use VARCHAR, difficulty INTEGER, spec VARCHAR);
CREATE TABLE tags (part_id VARCHAR, task_id VARCHAR, policy_id VARCHAR, purpose VARCHAR, difficulty INTEGER, k INTEGER, successes INTEGER, rate DOUBLE, wilson_low DOUBLE, wilson_high DOUBLE, reward_mean DOUBLE, reward_variance DOUBLE, learnability DOUBLE, region VARCHAR);
CREATE TABLE releases (part_id VARCHAR, release_id VARCHAR, name VARCHAR, manifest VARCHAR);
CREATE TABLE release_items (part_id VARCHAR, release_id VARCHAR, split VARCHAR, position INTEGER, kind VARCHAR, item_id VARCHAR, task_id VARCHAR, weight DOUBLE);

-- training
CREATE TABLE stages (part_id VARCHAR, stage_id VARCHAR, name VARCHAR, algorithm VARCHAR, backend VARCHAR, release_id VARCHAR, split VARCHAR, input_policy_id VARCHAR, output_policy_id VARCHAR, spec VARCHAR, code_hash VARCHAR, metrics VARCHAR, seconds DOUBLE);
CREATE TABLE policies (part_id VARCHAR, policy_id VARCHAR, stage_id VARCHAR, path VARCHAR, weights_hash VARCHAR);
CREATE TABLE evaluations (part_id VARCHAR, evaluation_id VARCHAR, policy_id VARCHAR, use VARCHAR, decoding VARCHAR, facet VARCHAR, facet_value VARCHAR, tasks INTEGER, samples INTEGER, rate DOUBLE, low DOUBLE, high DOUBLE, pass_k VARCHAR);
CREATE TABLE promotions (part_id VARCHAR, policy_id VARCHAR, position INTEGER, passed BOOLEAN, checks VARCHAR);
