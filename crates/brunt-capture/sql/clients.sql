-- The most active clients, their waiting times, and their share of misaligned transfers.
--
-- `clients` and `misaligned` in the report, whose ranking has the top 25 by operations, bytes and time. Quantiles
-- are exact; those in the report are at most 6.25 % off. A transfer is misaligned if its offset is not a multiple of
-- 4,096 bytes.
WITH called AS (
  SELECT flows.source AS client, latency_ns, moved_bytes, direction, coalesce(offset_bytes, 0) AS offset_bytes, status
  FROM operations JOIN flows ON operations.flow = flows.flow
), latencies AS (
  SELECT client, latency_ns, count(*) AS n FROM called WHERE latency_ns IS NOT NULL GROUP BY client, latency_ns
), ranked AS (
  SELECT client, latency_ns, sum(n) OVER (PARTITION BY client ORDER BY latency_ns) AS up_to,
         sum(n) OVER (PARTITION BY client) AS replies
  FROM latencies
), quantiles AS (
  SELECT client,
         min(CASE WHEN 2 * up_to >= replies THEN latency_ns END) AS p50_ns,
         min(CASE WHEN 10 * up_to >= 9 * replies THEN latency_ns END) AS p90_ns,
         min(CASE WHEN 100 * up_to >= 99 * replies THEN latency_ns END) AS p99_ns,
         min(CASE WHEN 1000 * up_to >= 999 * replies THEN latency_ns END) AS p999_ns
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
       p50_ns, p90_ns, p99_ns, p999_ns, max_ns,
       cast(transfers AS BIGINT) AS transfers, cast(misaligned AS BIGINT) AS misaligned
FROM counted LEFT JOIN quantiles ON counted.client = quantiles.client
ORDER BY operations DESC, client
