-- Latency of operations, second by second, from the histograms, without reading a single operation.
--
-- A quantile is the middle of its bucket, which is at most `_error_ns` off: 6.25 % or half a microsecond.
WITH merged AS (
  SELECT second, procedure, bucket, sum(count) AS n FROM latency_histograms GROUP BY second, procedure, bucket
), middles AS (
  SELECT second, procedure, n, bucket % 8 AS step, (bucket - bucket % 8) / 8 AS octave FROM merged
), buckets AS (
  SELECT second, procedure, n,
         CASE WHEN octave < 1 THEN step * 1024 + 512
              ELSE cast((8 + step) * power(2, octave - 1) * 1024 + power(2, octave - 1) * 512 AS BIGINT) END AS middle_ns,
         cast(power(2, greatest(octave - 1, 0)) * 512 AS BIGINT) AS error_ns
  FROM middles
), ranked AS (
  SELECT second, procedure, middle_ns, error_ns, sum(n) OVER (PARTITION BY second, procedure ORDER BY middle_ns) AS up_to,
         sum(n) OVER (PARTITION BY second, procedure) AS replies
  FROM buckets
)
SELECT second, procedure, cast(max(replies) AS BIGINT) AS replies,
       cast(min(CASE WHEN 2 * up_to >= replies THEN middle_ns END) AS BIGINT) AS p50_ns,
       cast(min(CASE WHEN 2 * up_to >= replies THEN error_ns END) AS BIGINT) AS p50_error_ns,
       cast(min(CASE WHEN 10 * up_to >= 9 * replies THEN middle_ns END) AS BIGINT) AS p90_ns,
       cast(min(CASE WHEN 10 * up_to >= 9 * replies THEN error_ns END) AS BIGINT) AS p90_error_ns,
       cast(min(CASE WHEN 100 * up_to >= 99 * replies THEN middle_ns END) AS BIGINT) AS p99_ns,
       cast(min(CASE WHEN 100 * up_to >= 99 * replies THEN error_ns END) AS BIGINT) AS p99_error_ns,
       cast(min(CASE WHEN 1000 * up_to >= 999 * replies THEN middle_ns END) AS BIGINT) AS p999_ns,
       cast(min(CASE WHEN 1000 * up_to >= 999 * replies THEN error_ns END) AS BIGINT) AS p999_error_ns
FROM ranked GROUP BY second, procedure ORDER BY second, procedure
