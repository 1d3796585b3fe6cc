-- Sizes of reads and writes, by powers of two.
--
-- The basis of `size_p50_bytes` and `size_p95_bytes` in the report's `profile`.
SELECT CASE WHEN direction = 0 THEN 'read' ELSE 'write' END AS direction,
       cast(power(2, CASE WHEN moved_bytes > 1 THEN length(bin(moved_bytes - 1)) ELSE 0 END) AS BIGINT) AS up_to_bytes,
       count(*) AS transfers, cast(sum(moved_bytes) AS BIGINT) AS bytes
FROM operations WHERE direction IS NOT NULL AND status = 0
GROUP BY direction, cast(power(2, CASE WHEN moved_bytes > 1 THEN length(bin(moved_bytes - 1)) ELSE 0 END) AS BIGINT)
ORDER BY direction, up_to_bytes
