-- `rollouts` is a view over Parquet parts, with two new columns: how often a rollout was begun, and what spoilt it in the end where that was
-- no doing of the policy's.
SELECT 1;
