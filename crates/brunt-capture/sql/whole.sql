-- Operations, bytes and latencies by kind of operation for the whole capture, from its windows.
--
-- Quantiles are upper bounds of buckets: at most 12.5 % too long.
WITH loads AS (
  SELECT operation, sum(calls) AS calls, sum(replies) AS replies, sum(errors) AS errors, sum(bytes) AS bytes,
         sum(latency_sum_ns) AS sum_ns, max(max_ns) AS max_ns
  FROM window_operations GROUP BY operation
), counted AS (
  SELECT operation, up_to_ns, sum(count) AS n FROM window_latencies GROUP BY operation, up_to_ns
), cumulated AS (
  SELECT operation, up_to_ns, sum(n) OVER (PARTITION BY operation ORDER BY up_to_ns) AS below,
         sum(n) OVER (PARTITION BY operation) AS answered
  FROM counted
), latencies AS (
  SELECT operation, max(answered) AS answered, min(CASE WHEN 2 * below >= answered THEN up_to_ns END) AS p50_ns,
         min(CASE WHEN 100 * below >= 99 * answered THEN up_to_ns END) AS p99_ns
  FROM cumulated GROUP BY operation
)
SELECT loads.operation AS operation, cast(calls AS BIGINT) AS calls, cast(replies AS BIGINT) AS replies,
       cast(errors AS BIGINT) AS errors, cast(bytes AS BIGINT) AS bytes,
       cast(round((sum_ns - sum_ns % answered) / answered) AS BIGINT) AS mean_ns, p50_ns, p99_ns, max_ns
FROM loads LEFT JOIN latencies ON loads.operation = latencies.operation
ORDER BY calls DESC, operation
