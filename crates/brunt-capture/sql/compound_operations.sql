-- Operations in NFSv4 compounds: how often each was executed and failed, and the bytes transferred.
--
-- The report counts compounds by their main operation; this query has all operations and their positions.
SELECT operation, count(*) AS calls, count(status) AS replies,
       cast(sum(CASE WHEN status <> 0 THEN 1 ELSE 0 END) AS BIGINT) AS errors,
       cast(coalesce(sum(moved_bytes), 0) AS BIGINT) AS bytes, max(position) AS position_max
FROM compounds GROUP BY operation ORDER BY calls DESC, operation
