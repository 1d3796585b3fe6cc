-- The workload of each server as input for sizing tools: rates, shares, sizes, and the capacity for a read cache.
--
-- The columns of `sizer`, by server, as in the report's `servers`: rates cover the server's successful reads and writes,
-- from the first to the last. The report lists at most 64 servers.
WITH digits AS (
  SELECT * FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15)) AS d(n)
), places AS (
  SELECT cast(a.n + 16 * b.n + 256 * c.n AS BIGINT) AS place
  FROM digits AS a CROSS JOIN digits AS b CROSS JOIN digits AS c
  UNION ALL SELECT cast(4096 AS BIGINT) AS place
), calls AS (
  SELECT file, direction, status, moved_bytes, coalesce(offset_bytes, 0) AS offset_bytes, record_id, request_first_ns,
         record_id - record_id % 281474976710656 AS parser, flows.source AS client, flows.destination AS server
  FROM operations JOIN flows ON operations.flow = flows.flow
), followed AS (
  SELECT server, file, direction, moved_bytes, offset_bytes,
         lag(offset_bytes + moved_bytes) OVER (
           PARTITION BY parser, client, file, direction ORDER BY record_id) AS expected_bytes
  FROM calls WHERE direction IS NOT NULL AND status = 0
), transfers AS (
  SELECT server, file, direction, moved_bytes, offset_bytes,
         CASE WHEN file IS NOT NULL AND expected_bytes = offset_bytes THEN 1 ELSE 0 END AS sequential
  FROM followed
), amounts AS (
  SELECT server, count(*) AS transfers,
         sum(CASE WHEN direction = 0 THEN 1 ELSE 0 END) AS reads,
         sum(CASE WHEN direction = 0 THEN sequential ELSE 0 END) AS sequential_reads,
         sum(CASE WHEN direction = 0 THEN moved_bytes ELSE 0 END) AS read_bytes,
         sum(CASE WHEN direction = 1 THEN 1 ELSE 0 END) AS writes,
         sum(CASE WHEN direction = 1 THEN sequential ELSE 0 END) AS sequential_writes,
         sum(CASE WHEN direction = 1 THEN moved_bytes ELSE 0 END) AS written_bytes
  FROM transfers GROUP BY server
), ranges AS (
  SELECT server, file, offset_bytes - offset_bytes % 4096 AS first_bytes,
         offset_bytes + moved_bytes - 1 - (offset_bytes + moved_bytes - 1) % 4096 AS last_bytes
  FROM transfers WHERE direction = 0 AND sequential = 0 AND moved_bytes > 0 AND file IS NOT NULL
  GROUP BY server, file, offset_bytes - offset_bytes % 4096,
           offset_bytes + moved_bytes - 1 - (offset_bytes + moved_bytes - 1) % 4096
), blocks AS (
  SELECT server, file, first_bytes + 4096 * place AS block_bytes
  FROM ranges JOIN places ON first_bytes + 4096 * place <= last_bytes
  GROUP BY server, file, first_bytes + 4096 * place
), working_sets AS (
  SELECT server, 4096 * count(*) AS bytes FROM blocks GROUP BY server
), seconds AS (
  SELECT server, count(*) AS requests FROM calls WHERE direction IS NOT NULL AND status = 0
  GROUP BY server, request_first_ns - request_first_ns % 1000000000
), peaks AS (
  SELECT server, max(requests) AS peak FROM seconds GROUP BY server
), loads AS (
  SELECT server, count(*) AS operations, sum(CASE WHEN direction IS NULL THEN 1 ELSE 0 END) AS metadata,
         min(CASE WHEN direction IS NOT NULL AND status = 0 THEN request_first_ns END) AS first_ns,
         max(CASE WHEN direction IS NOT NULL AND status = 0 THEN request_first_ns END) AS last_ns
  FROM calls GROUP BY server
)
SELECT loads.server AS server, cast(operations AS BIGINT) AS operations,
       cast(metadata AS DOUBLE) / nullif(operations, 0) AS metadata,
       cast(1000000000 * transfers AS DOUBLE) / nullif(last_ns - first_ns, 0) AS mean_per_s,
       cast(coalesce(peak, 0) AS BIGINT) AS peak_per_s,
       cast(reads - sequential_reads AS DOUBLE) / nullif(transfers, 0) AS random_read,
       cast(writes - sequential_writes AS DOUBLE) / nullif(transfers, 0) AS random_write,
       cast(sequential_reads AS DOUBLE) / nullif(transfers, 0) AS sequential_read,
       cast(sequential_writes AS DOUBLE) / nullif(transfers, 0) AS sequential_write,
       cast(read_bytes AS DOUBLE) / nullif(reads, 0) AS read_bytes,
       cast(written_bytes AS DOUBLE) / nullif(writes, 0) AS write_bytes,
       cast(coalesce(working_sets.bytes, 0) AS BIGINT) AS random_read_working_set_bytes
FROM loads LEFT JOIN amounts ON loads.server = amounts.server LEFT JOIN peaks ON loads.server = peaks.server
     LEFT JOIN working_sets ON loads.server = working_sets.server
ORDER BY operations DESC, loads.server
