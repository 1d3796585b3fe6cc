-- What NFSv4 compounds are made of: each operation, how often it was run and failed, and the bytes that it moved.
--
-- The report counts compounds by their main operation; this has all of them, and where they stand.
SELECT operation, count(*) AS calls, count(status) AS replies,
       cast(sum(CASE WHEN status <> 0 THEN 1 ELSE 0 END) AS BIGINT) AS errors,
       cast(coalesce(sum(moved_bytes), 0) AS BIGINT) AS bytes, max(position) AS position_max
FROM compounds GROUP BY operation ORDER BY calls DESC, operation
