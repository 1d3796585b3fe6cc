-- Files and directories with the most operations, bytes or waiting time.
--
-- `files` in the report: all that are in the top 25 by one of the three. The name is from the last operation that named
-- the file; the report shows the whole path. Quantiles are exact and include all operations; the report counts
-- latencies from a file's 32nd operation on, in buckets, so its quantiles are at most 6.25 % off.
WITH loads AS (
  SELECT file, count(*) AS operations, sum(CASE WHEN status = 0 THEN moved_bytes ELSE 0 END) AS bytes, coalesce(sum(latency_ns), 0) AS time_ns
  FROM operations WHERE file IS NOT NULL GROUP BY file
), ranked AS (
  -- Keys are unsigned 64-bit numbers: those that are negative here are the larger ones.
  SELECT file, operations, bytes, time_ns,
         row_number() OVER (ORDER BY operations DESC, CASE WHEN file < 0 THEN 1 ELSE 0 END, file) AS by_operations,
         row_number() OVER (ORDER BY bytes DESC, CASE WHEN file < 0 THEN 1 ELSE 0 END, file) AS by_bytes,
         row_number() OVER (ORDER BY time_ns DESC, CASE WHEN file < 0 THEN 1 ELSE 0 END, file) AS by_time
  FROM loads
), top AS (
  SELECT * FROM ranked
  WHERE by_operations <= 25 OR by_bytes <= 25 AND bytes > 0 OR by_time <= 25 AND time_ns > 0
), told AS (
  SELECT names.leads_to AS file, names.name AS name, operations.completion_id AS completion_id, 0 AS listed,
         names.position AS place
  FROM names JOIN operations ON names.record_id = operations.record_id
  WHERE names.leads_to IN (SELECT file FROM top) AND names.name IS NOT NULL
  UNION ALL
  SELECT entries.file AS file, entries.name AS name, operations.completion_id AS completion_id, 1 AS listed,
         entries.entry AS place
  FROM entries JOIN operations ON entries.record_id = operations.record_id
  WHERE entries.file IN (SELECT file FROM top)
), last_told AS (
  SELECT file, name,
         row_number() OVER (PARTITION BY file ORDER BY completion_id DESC, listed DESC, place DESC) AS last_first
  FROM told WHERE name NOT IN ('.', '..')
), counted AS (
  SELECT file, latency_ns, count(*) AS n FROM operations
  WHERE file IN (SELECT file FROM top) AND latency_ns IS NOT NULL GROUP BY file, latency_ns
), cumulated AS (
  SELECT file, latency_ns, n * latency_ns AS sum_ns, sum(n) OVER (PARTITION BY file ORDER BY latency_ns) AS up_to,
         sum(n) OVER (PARTITION BY file) AS replies
  FROM counted
), latencies AS (
  SELECT file, max(replies) AS replies, sum(sum_ns) AS sum_ns, max(latency_ns) AS max_ns,
         min(CASE WHEN 2 * up_to >= replies THEN latency_ns END) AS p50_ns,
         min(CASE WHEN 10 * up_to >= 9 * replies THEN latency_ns END) AS p90_ns,
         min(CASE WHEN 100 * up_to >= 99 * replies THEN latency_ns END) AS p99_ns,
         min(CASE WHEN 1000 * up_to >= 999 * replies THEN latency_ns END) AS p999_ns
  FROM cumulated GROUP BY file
), servers AS (
  SELECT file, min(server) AS server FROM handles GROUP BY file
)
SELECT top.file AS file, server, name, cast(operations AS BIGINT) AS operations, cast(bytes AS BIGINT) AS bytes,
       cast(time_ns AS BIGINT) AS time_ns, cast(by_operations AS BIGINT) AS by_operations,
       cast(by_bytes AS BIGINT) AS by_bytes, cast(by_time AS BIGINT) AS by_time,
       cast(round((sum_ns - sum_ns % replies) / replies) AS BIGINT) AS mean_ns,
       p50_ns, p90_ns, p99_ns, p999_ns, max_ns
FROM top LEFT JOIN servers ON top.file = servers.file LEFT JOIN last_told ON top.file = last_told.file AND last_first = 1
  LEFT JOIN latencies ON top.file = latencies.file
ORDER BY by_operations
