-- Which operations there are, how often they fail, and how long they take.
--
-- `by_operation` of the report. A quantile is the longest latency of its bucket, and a bucket is at most 0.1 % of its
-- latencies wide: from 1,024 ns on, each octave has 1,024 buckets. 2^43 ns and longer is one bucket.
WITH answered AS (
  SELECT operation, latency_ns, least(latency_ns, 8796093022208) AS counted_ns
  FROM operations WHERE latency_ns IS NOT NULL
), sized AS (
  SELECT operation, counted_ns, cast(power(2, length(bin(greatest(counted_ns, 1024))) - 11) AS BIGINT) AS width_ns
  FROM answered
), buckets AS (
  SELECT operation, counted_ns - counted_ns % width_ns + width_ns - 1 AS longest_ns, count(*) AS n
  FROM sized GROUP BY operation, counted_ns - counted_ns % width_ns + width_ns - 1
), ranked AS (
  SELECT operation, longest_ns, sum(n) OVER (PARTITION BY operation ORDER BY longest_ns) AS up_to,
         sum(n) OVER (PARTITION BY operation) AS replies
  FROM buckets
), quantiles AS (
  SELECT operation,
         min(CASE WHEN 2 * up_to >= replies THEN longest_ns END) AS p50_ns,
         min(CASE WHEN 10 * up_to >= 9 * replies THEN longest_ns END) AS p90_ns,
         min(CASE WHEN 100 * up_to >= 99 * replies THEN longest_ns END) AS p99_ns,
         min(CASE WHEN 1000 * up_to >= 999 * replies THEN longest_ns END) AS p999_ns
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
       cast(least(p50_ns, max_ns) AS BIGINT) AS p50_ns, cast(least(p90_ns, max_ns) AS BIGINT) AS p90_ns,
       cast(least(p99_ns, max_ns) AS BIGINT) AS p99_ns, cast(least(p999_ns, max_ns) AS BIGINT) AS p999_ns,
       max_ns
FROM counted LEFT JOIN quantiles ON counted.operation = quantiles.operation
ORDER BY calls DESC, operation
