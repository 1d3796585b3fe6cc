-- Share of the load on the 25 hottest files, clients and client-file pairs.
--
-- `count`, `top25_operations_share` and `top25_bytes_share` in the report's rankings.
WITH called AS (
  SELECT flows.source AS client, file, status, moved_bytes FROM operations JOIN flows ON operations.flow = flows.flow
), loads AS (
  SELECT 'clients' AS what, count(*) AS operations, sum(CASE WHEN status = 0 THEN moved_bytes ELSE 0 END) AS bytes FROM called GROUP BY client
  UNION ALL
  SELECT 'files' AS what, count(*) AS operations, sum(CASE WHEN status = 0 THEN moved_bytes ELSE 0 END) AS bytes FROM called
  WHERE file IS NOT NULL GROUP BY file
  UNION ALL
  SELECT 'pairs' AS what, count(*) AS operations, sum(CASE WHEN status = 0 THEN moved_bytes ELSE 0 END) AS bytes FROM called
  WHERE file IS NOT NULL GROUP BY client, file
), ranked AS (
  SELECT what, operations, bytes,
         row_number() OVER (PARTITION BY what ORDER BY operations DESC) AS by_operations,
         row_number() OVER (PARTITION BY what ORDER BY bytes DESC) AS by_bytes
  FROM loads
), total AS (
  SELECT count(*) AS operations, coalesce(sum(CASE WHEN status = 0 THEN moved_bytes ELSE 0 END), 0) AS bytes FROM operations
), top AS (
  SELECT what, count(*) AS entries,
         sum(CASE WHEN by_operations <= 25 THEN operations ELSE 0 END) AS top_operations,
         sum(CASE WHEN by_bytes <= 25 THEN bytes ELSE 0 END) AS top_bytes
  FROM ranked GROUP BY what
)
SELECT what, cast(entries AS BIGINT) AS entries, cast(top_operations AS BIGINT) AS top25_operations,
       cast(top_bytes AS BIGINT) AS top25_bytes,
       top_operations / cast(nullif(total.operations, 0) AS DOUBLE) AS top25_operations_share,
       top_bytes / cast(nullif(total.bytes, 0) AS DOUBLE) AS top25_bytes_share
FROM top CROSS JOIN total ORDER BY what
