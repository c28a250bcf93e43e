-- `provenance` is a view over Parquet parts: of every trajectory that a language model had a part in, who played which role, told what, how
-- well the user kept to its script, what the judge said, and how far the judge can be trusted.
SELECT 1;
