-- Workload profile for sizing: reads, writes, their sizes and order, and the number of outstanding requests.
--
-- `profile` in the report, except for the working sets, which have their own query. A transfer is a read or write that
-- succeeded; all others are counted as left out, by reason. A transfer is sequential if it begins where the same
-- client's previous transfer on the same file in the same direction ended, in the order of requests, because replies
-- may overtake each other. Sizes are powers of two, and NULL if there are no such transfers.
WITH calls AS (
  SELECT direction, moved_bytes, latency_ns, outstanding, status, file, coalesce(offset_bytes, 0) AS offset_bytes, record_id,
         record_id - record_id % 281474976710656 AS parser, flows.source AS client
  FROM operations JOIN flows ON operations.flow = flows.flow
), followed AS (
  SELECT direction, moved_bytes, offset_bytes, file,
         lag(offset_bytes + moved_bytes) OVER (
           PARTITION BY parser, client, file, direction ORDER BY record_id) AS expected_bytes
  FROM calls WHERE direction IS NOT NULL AND status = 0
), transfers AS (
  SELECT direction, moved_bytes, CASE WHEN file IS NOT NULL AND expected_bytes = offset_bytes THEN 1 ELSE 0 END AS sequential,
         cast(power(2, CASE WHEN moved_bytes > 1 THEN length(bin(moved_bytes - 1)) ELSE 0 END) AS BIGINT) AS size_bytes
  FROM followed
), sizes AS (
  SELECT direction, size_bytes, sum(count(*)) OVER (PARTITION BY direction ORDER BY size_bytes) AS up_to,
         sum(count(*)) OVER (PARTITION BY direction) AS n
  FROM transfers GROUP BY direction, size_bytes
), quantiles AS (
  SELECT direction, min(CASE WHEN 2 * up_to >= n THEN size_bytes END) AS p50,
         min(CASE WHEN 100 * up_to >= 95 * n THEN size_bytes END) AS p95
  FROM sizes GROUP BY direction
), moved AS (
  SELECT direction, count(*) AS n, sum(moved_bytes) AS bytes, sum(sequential) AS sequential
  FROM transfers GROUP BY direction
), amounts AS (
  SELECT moved.direction AS direction, n, bytes, sequential, p50, p95
  FROM moved JOIN quantiles ON moved.direction = quantiles.direction
), both_ways AS (
  SELECT max(CASE WHEN direction = 0 THEN n END) AS read_operations,
         max(CASE WHEN direction = 0 THEN bytes END) AS read_bytes,
         max(CASE WHEN direction = 0 THEN sequential END) AS read_sequential,
         max(CASE WHEN direction = 0 THEN p50 END) AS read_size_p50_bytes,
         max(CASE WHEN direction = 0 THEN p95 END) AS read_size_p95_bytes,
         max(CASE WHEN direction = 1 THEN n END) AS write_operations,
         max(CASE WHEN direction = 1 THEN bytes END) AS write_bytes,
         max(CASE WHEN direction = 1 THEN sequential END) AS write_sequential,
         max(CASE WHEN direction = 1 THEN p50 END) AS write_size_p50_bytes,
         max(CASE WHEN direction = 1 THEN p95 END) AS write_size_p95_bytes
  FROM amounts
), times AS (
  SELECT time_ns AS at_ns FROM packets UNION ALL SELECT request_first_ns AS at_ns FROM operations
), duration AS (
  SELECT max(at_ns) - min(at_ns) AS duration_ns FROM times
), waiting AS (
  SELECT count(*) AS operations, coalesce(sum(CASE WHEN direction IS NULL THEN 1 ELSE 0 END), 0) AS metadata_operations,
         coalesce(sum(CASE WHEN direction IS NOT NULL AND status <> 0 THEN 1 ELSE 0 END), 0) AS left_out_failed,
         coalesce(sum(CASE WHEN direction IS NOT NULL AND status IS NULL AND latency_ns IS NOT NULL THEN 1 ELSE 0 END), 0)
           AS left_out_status_unseen,
         coalesce(sum(CASE WHEN direction IS NOT NULL AND status IS NULL AND latency_ns IS NULL THEN 1 ELSE 0 END), 0)
           AS left_out_unanswered,
         coalesce(sum(latency_ns), 0) AS waited_ns, max(outstanding) AS outstanding_max
  FROM operations
)
SELECT cast(operations AS BIGINT) AS operations, cast(metadata_operations AS BIGINT) AS metadata_operations,
       cast(left_out_failed AS BIGINT) AS left_out_failed,
       cast(left_out_status_unseen AS BIGINT) AS left_out_status_unseen,
       cast(left_out_unanswered AS BIGINT) AS left_out_unanswered,
       cast(coalesce(read_operations, 0) AS BIGINT) AS read_operations,
       cast(coalesce(read_bytes, 0) AS BIGINT) AS read_bytes,
       cast(coalesce(read_sequential, 0) AS BIGINT) AS read_sequential,
       cast(read_size_p50_bytes AS BIGINT) AS read_size_p50_bytes,
       cast(read_size_p95_bytes AS BIGINT) AS read_size_p95_bytes,
       cast(coalesce(write_operations, 0) AS BIGINT) AS write_operations,
       cast(coalesce(write_bytes, 0) AS BIGINT) AS write_bytes,
       cast(coalesce(write_sequential, 0) AS BIGINT) AS write_sequential,
       cast(write_size_p50_bytes AS BIGINT) AS write_size_p50_bytes,
       cast(write_size_p95_bytes AS BIGINT) AS write_size_p95_bytes,
       cast(duration_ns AS BIGINT) AS duration_ns, cast(waited_ns AS BIGINT) AS waited_ns,
       cast(waited_ns AS DOUBLE) / nullif(duration_ns, 0) AS outstanding_mean,
       coalesce(outstanding_max, 0) AS outstanding_max
FROM waiting CROSS JOIN both_ways CROSS JOIN duration
