-- Operations, bytes, latencies and time without capture on each day (UTC), from its windows.
--
-- Quantiles are upper bounds of buckets: at most 12.5 % too long.
WITH loads AS (
  SELECT window_from_ns - window_from_ns % 86400000000000 AS day_ns, count(*) AS windows, sum(operations) AS operations,
         sum(errors) AS errors, sum(read_bytes) AS read_bytes, sum(written_bytes) AS written_bytes,
         sum(last_ns - first_ns) AS captured_ns, sum(gap_before_ns) AS gap_ns, sum(packets_dropped) AS packets_dropped
  FROM windows GROUP BY window_from_ns - window_from_ns % 86400000000000
), counted AS (
  SELECT window_from_ns - window_from_ns % 86400000000000 AS day_ns, up_to_ns, sum(count) AS n
  FROM window_latencies GROUP BY window_from_ns - window_from_ns % 86400000000000, up_to_ns
), cumulated AS (
  SELECT day_ns, up_to_ns, sum(n) OVER (PARTITION BY day_ns ORDER BY up_to_ns) AS below,
         sum(n) OVER (PARTITION BY day_ns) AS replies
  FROM counted
), latencies AS (
  SELECT day_ns, min(CASE WHEN 2 * below >= replies THEN up_to_ns END) AS p50_ns,
         min(CASE WHEN 100 * below >= 99 * replies THEN up_to_ns END) AS p99_ns
  FROM cumulated GROUP BY day_ns
)
SELECT loads.day_ns AS day_ns, cast(windows AS BIGINT) AS windows, cast(operations AS BIGINT) AS operations,
       cast(errors AS BIGINT) AS errors, cast(read_bytes AS BIGINT) AS read_bytes,
       cast(written_bytes AS BIGINT) AS written_bytes, p50_ns, p99_ns, cast(captured_ns AS BIGINT) AS captured_ns,
       cast(gap_ns AS BIGINT) AS gap_ns, cast(packets_dropped AS BIGINT) AS packets_dropped
FROM loads LEFT JOIN latencies ON loads.day_ns = latencies.day_ns
ORDER BY loads.day_ns
