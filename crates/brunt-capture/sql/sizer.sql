-- The workload in one row, as input for sizing tools: rates, shares, sizes, and the capacity for a read cache.
--
-- Based on the report's `profile`, `operations` and `duration_s`. `mean_per_s` and `peak_per_s` cover successful reads
-- and writes, as in `brunt trace fit`: from the first of them to the last, and in one second of the clock.
-- `operations_per_s` and `operations_peak_per_s` cover all operations: over the whole capture, and in one second of the
-- clock. `profile` defines what is sequential; the working set consists of the 4,096-byte blocks of non-sequential reads.
WITH digits AS (
  SELECT * FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15)) AS d(n)
), places AS (
  SELECT cast(a.n + 16 * b.n + 256 * c.n AS BIGINT) AS place
  FROM digits AS a CROSS JOIN digits AS b CROSS JOIN digits AS c
  UNION ALL SELECT cast(4096 AS BIGINT) AS place
), calls AS (
  SELECT file, direction, moved_bytes, coalesce(offset_bytes, 0) AS offset_bytes, record_id,
         record_id - record_id % 281474976710656 AS parser, flows.source AS client
  FROM operations JOIN flows ON operations.flow = flows.flow WHERE direction IS NOT NULL AND status = 0
), followed AS (
  SELECT file, direction, moved_bytes, offset_bytes,
         lag(offset_bytes + moved_bytes) OVER (
           PARTITION BY parser, client, file, direction ORDER BY record_id) AS expected_bytes
  FROM calls
), transfers AS (
  SELECT file, direction, moved_bytes, offset_bytes,
         CASE WHEN file IS NOT NULL AND expected_bytes = offset_bytes THEN 1 ELSE 0 END AS sequential
  FROM followed
), amounts AS (
  SELECT count(*) AS transfers,
         coalesce(sum(CASE WHEN direction = 0 THEN 1 ELSE 0 END), 0) AS reads,
         coalesce(sum(CASE WHEN direction = 0 THEN sequential ELSE 0 END), 0) AS sequential_reads,
         coalesce(sum(CASE WHEN direction = 0 THEN moved_bytes ELSE 0 END), 0) AS read_bytes,
         coalesce(sum(CASE WHEN direction = 1 THEN 1 ELSE 0 END), 0) AS writes,
         coalesce(sum(CASE WHEN direction = 1 THEN sequential ELSE 0 END), 0) AS sequential_writes,
         coalesce(sum(CASE WHEN direction = 1 THEN moved_bytes ELSE 0 END), 0) AS written_bytes
  FROM transfers
), ranges AS (
  SELECT file, offset_bytes - offset_bytes % 4096 AS first_bytes,
         offset_bytes + moved_bytes - 1 - (offset_bytes + moved_bytes - 1) % 4096 AS last_bytes
  FROM transfers WHERE direction = 0 AND sequential = 0 AND moved_bytes > 0 AND file IS NOT NULL
  GROUP BY file, offset_bytes - offset_bytes % 4096,
           offset_bytes + moved_bytes - 1 - (offset_bytes + moved_bytes - 1) % 4096
), blocks AS (
  SELECT file, first_bytes + 4096 * place AS block_bytes
  FROM ranges JOIN places ON first_bytes + 4096 * place <= last_bytes
  GROUP BY file, first_bytes + 4096 * place
), working_set AS (
  SELECT 4096 * count(*) AS bytes FROM blocks
), seconds AS (
  SELECT request_first_ns - request_first_ns % 1000000000 AS second_ns, count(*) AS requests,
         sum(CASE WHEN direction IS NULL THEN 1 ELSE 0 END) AS metadata
  FROM operations GROUP BY request_first_ns - request_first_ns % 1000000000
), peak AS (
  SELECT coalesce(max(requests), 0) AS requests, coalesce(sum(requests), 0) AS operations,
         coalesce(sum(metadata), 0) AS metadata FROM seconds
), span AS (
  SELECT min(request_first_ns) AS first_ns, max(request_first_ns) AS last_ns
  FROM operations WHERE direction IS NOT NULL AND status = 0
), transfer_seconds AS (
  SELECT request_first_ns - request_first_ns % 1000000000 AS second_ns, count(*) AS requests
  FROM operations WHERE direction IS NOT NULL AND status = 0
  GROUP BY request_first_ns - request_first_ns % 1000000000
), transfer_peak AS (
  SELECT coalesce(max(requests), 0) AS transfers_peak FROM transfer_seconds
), times AS (
  SELECT time_ns AS at_ns FROM packets UNION ALL SELECT request_first_ns AS at_ns FROM operations
), duration AS (
  SELECT max(at_ns) - min(at_ns) AS duration_ns FROM times
)
SELECT cast(1000000000 * transfers AS DOUBLE) / nullif(last_ns - first_ns, 0) AS mean_per_s,
       cast(transfers_peak AS BIGINT) AS peak_per_s,
       cast(1000000000 * operations AS DOUBLE) / nullif(duration_ns, 0) AS operations_per_s,
       cast(requests AS BIGINT) AS operations_peak_per_s,
       cast(reads - sequential_reads AS DOUBLE) / nullif(transfers, 0) AS random_read,
       cast(writes - sequential_writes AS DOUBLE) / nullif(transfers, 0) AS random_write,
       cast(sequential_reads AS DOUBLE) / nullif(transfers, 0) AS sequential_read,
       cast(sequential_writes AS DOUBLE) / nullif(transfers, 0) AS sequential_write,
       cast(metadata AS DOUBLE) / nullif(operations, 0) AS metadata,
       cast(read_bytes AS DOUBLE) / nullif(reads, 0) AS read_bytes,
       cast(written_bytes AS DOUBLE) / nullif(writes, 0) AS write_bytes,
       cast(working_set.bytes AS BIGINT) AS random_read_working_set_bytes
FROM amounts CROSS JOIN working_set CROSS JOIN peak CROSS JOIN duration CROSS JOIN span CROSS JOIN transfer_peak
