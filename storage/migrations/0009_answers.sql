-- `answers` is a view over Parquet parts: what models were asked and answered, each whole request once.
SELECT 1;
