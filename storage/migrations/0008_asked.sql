-- `asked` is a view over Parquet parts: of rows that were read, a hash of the combination that they ask in, so that later logs know how often
-- it was asked for.
SELECT 1;
