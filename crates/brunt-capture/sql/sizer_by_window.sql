-- The workload of each server in each window as input for sizing tools: rates, shares, sizes, and read cache capacity.
--
-- Like `servers` for a trace. The rows of an interrupted window are combined: counts are added up, and of peaks and
-- working sets the largest is used, so the actual ones may be higher. The mean rate includes the time without capture.
WITH loads AS (
  SELECT window_from_ns, server, sum(operations) AS operations, sum(metadata_operations) AS metadata,
         sum(reads) AS reads, sum(sequential_reads) AS sequential_reads, sum(read_bytes) AS read_bytes,
         sum(writes) AS writes, sum(sequential_writes) AS sequential_writes, sum(written_bytes) AS written_bytes,
         min(first_ns) AS first_ns, max(last_ns) AS last_ns, max(peak_per_s) AS peak_per_s,
         max(random_read_working_set_bytes) AS working_set_bytes
  FROM window_servers GROUP BY window_from_ns, server
)
SELECT window_from_ns, server, cast(operations AS BIGINT) AS operations,
       cast(metadata AS DOUBLE) / nullif(operations, 0) AS metadata,
       cast(1000000000 * (reads + writes) AS DOUBLE) / nullif(last_ns - first_ns, 0) AS mean_per_s,
       cast(peak_per_s AS BIGINT) AS peak_per_s,
       cast(reads - sequential_reads AS DOUBLE) / nullif(reads + writes, 0) AS random_read,
       cast(writes - sequential_writes AS DOUBLE) / nullif(reads + writes, 0) AS random_write,
       cast(sequential_reads AS DOUBLE) / nullif(reads + writes, 0) AS sequential_read,
       cast(sequential_writes AS DOUBLE) / nullif(reads + writes, 0) AS sequential_write,
       cast(read_bytes AS DOUBLE) / nullif(reads, 0) AS read_bytes,
       cast(written_bytes AS DOUBLE) / nullif(writes, 0) AS write_bytes,
       cast(working_set_bytes AS BIGINT) AS random_read_working_set_bytes
FROM loads ORDER BY window_from_ns, operations DESC, server
