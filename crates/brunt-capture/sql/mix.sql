-- Operations by kind: number, errors and latency.
--
-- `by_operation` in the report, but with exact quantiles: the report counts latencies in buckets, so its quantiles are
-- up to 0.1 % longer.
WITH latencies AS (
  SELECT operation, latency_ns, count(*) AS n FROM operations WHERE latency_ns IS NOT NULL GROUP BY operation, latency_ns
), ranked AS (
  SELECT operation, latency_ns, sum(n) OVER (PARTITION BY operation ORDER BY latency_ns) AS up_to,
         sum(n) OVER (PARTITION BY operation) AS replies
  FROM latencies
), quantiles AS (
  SELECT operation,
         min(CASE WHEN 2 * up_to >= replies THEN latency_ns END) AS p50_ns,
         min(CASE WHEN 10 * up_to >= 9 * replies THEN latency_ns END) AS p90_ns,
         min(CASE WHEN 100 * up_to >= 99 * replies THEN latency_ns END) AS p99_ns,
         min(CASE WHEN 1000 * up_to >= 999 * replies THEN latency_ns END) AS p999_ns
  FROM ranked GROUP BY operation
), counted AS (
  SELECT operation, count(*) AS calls, count(latency_ns) AS replies,
         sum(CASE WHEN status <> 0 THEN 1 ELSE 0 END) AS errors, sum(CASE WHEN status = 0 THEN moved_bytes ELSE 0 END) AS bytes,
         sum(latency_ns) AS sum_ns, max(latency_ns) AS max_ns
  FROM operations GROUP BY operation
)
SELECT counted.operation AS operation, cast(calls AS BIGINT) AS calls, cast(replies AS BIGINT) AS replies,
       cast(errors AS BIGINT) AS errors, cast(bytes AS BIGINT) AS bytes,
       cast(round((sum_ns - sum_ns % nullif(replies, 0)) / nullif(replies, 0)) AS BIGINT) AS mean_ns,
       p50_ns, p90_ns, p99_ns, p999_ns, max_ns
FROM counted LEFT JOIN quantiles ON counted.operation = quantiles.operation
ORDER BY calls DESC, operation
