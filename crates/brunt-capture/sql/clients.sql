-- Which clients do most, how long they wait, and how many of their transfers are misaligned.
--
-- `clients` and `misaligned` of the report; its ranking is the 25 first by operations, bytes and time. A quantile is
-- the middle of its bucket, as in `latency_histograms`, and at most 6.25 % off. A transfer is misaligned when its
-- offset is no multiple of 4,096 bytes.
WITH called AS (
  SELECT flows.source AS client, latency_ns, moved_bytes, direction, coalesce(offset_bytes, 0) AS offset_bytes, status
  FROM operations JOIN flows ON operations.flow = flows.flow
), units AS (
  SELECT client, least((latency_ns - latency_ns % 1024) / 1024, 536870911) AS units
  FROM called WHERE latency_ns IS NOT NULL
), whole AS (
  SELECT client, cast(round(units) AS BIGINT) AS units FROM units
), sized AS (
  SELECT client, units, cast(power(2, length(bin(greatest(units, 8))) - 4) AS BIGINT) AS width FROM whole
), buckets AS (
  SELECT client, greatest((units - units % width) * 1024 + width * 512, 1) AS middle_ns, count(*) AS n
  FROM sized GROUP BY client, greatest((units - units % width) * 1024 + width * 512, 1)
), ranked AS (
  SELECT client, middle_ns, sum(n) OVER (PARTITION BY client ORDER BY middle_ns) AS up_to,
         sum(n) OVER (PARTITION BY client) AS replies
  FROM buckets
), quantiles AS (
  SELECT client,
         min(CASE WHEN 2 * up_to >= replies THEN middle_ns END) AS p50_ns,
         min(CASE WHEN 10 * up_to >= 9 * replies THEN middle_ns END) AS p90_ns,
         min(CASE WHEN 100 * up_to >= 99 * replies THEN middle_ns END) AS p99_ns,
         min(CASE WHEN 1000 * up_to >= 999 * replies THEN middle_ns END) AS p999_ns
  FROM ranked GROUP BY client
), counted AS (
  SELECT client, count(*) AS operations, count(latency_ns) AS replies,
         sum(CASE WHEN status <> 0 THEN 1 ELSE 0 END) AS errors, sum(CASE WHEN status = 0 THEN moved_bytes ELSE 0 END) AS bytes,
         sum(latency_ns) AS sum_ns, max(latency_ns) AS max_ns, sum(CASE WHEN direction IS NOT NULL AND status = 0 THEN 1 ELSE 0 END) AS transfers,
         sum(CASE WHEN direction IS NOT NULL AND status = 0 AND offset_bytes % 4096 <> 0 THEN 1 ELSE 0 END) AS misaligned
  FROM called GROUP BY client
)
SELECT counted.client AS client, cast(operations AS BIGINT) AS operations, cast(errors AS BIGINT) AS errors,
       cast(bytes AS BIGINT) AS bytes, cast(coalesce(sum_ns, 0) AS BIGINT) AS time_ns,
       cast(round((sum_ns - sum_ns % nullif(replies, 0)) / nullif(replies, 0)) AS BIGINT) AS mean_ns,
       cast(least(p50_ns, max_ns) AS BIGINT) AS p50_ns, cast(least(p90_ns, max_ns) AS BIGINT) AS p90_ns,
       cast(least(p99_ns, max_ns) AS BIGINT) AS p99_ns, cast(least(p999_ns, max_ns) AS BIGINT) AS p999_ns,
       max_ns, cast(transfers AS BIGINT) AS transfers, cast(misaligned AS BIGINT) AS misaligned
FROM counted LEFT JOIN quantiles ON counted.client = quantiles.client
ORDER BY operations DESC, client
