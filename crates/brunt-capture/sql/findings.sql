-- Findings: loss, error and GETATTR storms, misalignment, hot files, slow tails, duplicates, flushes.
--
-- The kinds of findings in the report, under the same conditions, each with the two numbers that it is based on: usually
-- a count and its total; for `slow-tail`, the exact 99th percentile and median in nanoseconds.
WITH ledger AS (
  SELECT * FROM statistics
  ORDER BY time_ns DESC, packets DESC, calls DESC, calls_open_at_end DESC, trace_rows_lost DESC LIMIT 1
), called AS (
  SELECT operation, operations.protocol AS protocol, status, file, latency_ns, direction,
         coalesce(offset_bytes, 0) AS offset_bytes, flows.source AS client
  FROM operations JOIN flows ON operations.flow = flows.flow
), mix AS (
  SELECT operation, count(*) AS calls
  FROM called GROUP BY operation
), total AS (
  SELECT count(*) AS calls FROM operations
), times AS (
  SELECT time_ns AS at_ns FROM packets UNION ALL SELECT request_first_ns AS at_ns FROM operations
), duration AS (
  SELECT greatest((max(at_ns) - min(at_ns)) / 1e9, 1e-9) AS seconds FROM times
), unknown AS (
  SELECT count(*) AS packets FROM packets WHERE not_understood IS NOT NULL
), loss AS (
  SELECT 1 AS place, CASE
      WHEN packets_dropped > 0
        OR (replies_unmatched + records_lost + coalesce(replies_lost, 0) >= 10 OR calls + replies_unmatched + records_lost >= 100)
          AND (calls > 0 OR records_lost >= 10)
          AND 1000 * (replies_unmatched + records_lost + coalesce(replies_lost, 0)) >= greatest(calls + replies_unmatched + records_lost, 1)
        THEN 'capture-loss'
      WHEN records_damaged >= 10 AND 100 * records_damaged >= greatest(calls + replies, 1) THEN 'capture-incomplete'
    END AS kind, replies_unmatched + records_lost + coalesce(replies_lost, 0) AS lost, calls + replies_unmatched + records_lost AS operations,
    records_damaged, calls + replies AS messages
  FROM ledger
), storms AS (
  SELECT operation, status, protocol, count(*) AS n FROM called WHERE status <> 0 GROUP BY operation, status, protocol
), pairs AS (
  SELECT client, file, sum(CASE WHEN operation = 'GETATTR' THEN 1 ELSE 0 END) AS getattrs
  FROM called WHERE file IS NOT NULL GROUP BY client, file
), clients AS (
  SELECT client, sum(CASE WHEN direction IS NOT NULL AND status = 0 THEN 1 ELSE 0 END) AS transfers,
         sum(CASE WHEN direction IS NOT NULL AND status = 0 AND offset_bytes % 4096 <> 0 THEN 1 ELSE 0 END) AS misaligned
  FROM called GROUP BY client
), misaligned AS (
  SELECT client, transfers, misaligned, row_number() OVER (ORDER BY misaligned DESC, client) AS first
  FROM clients WHERE transfers >= 50 AND 100 * misaligned >= 20 * transfers
), files AS (
  SELECT count(*) AS n FROM called WHERE file IS NOT NULL GROUP BY file
), hot AS (
  SELECT n, row_number() OVER (ORDER BY n DESC) AS first, count(*) OVER () AS files FROM files
), hot_files AS (
  SELECT sum(n) AS n, max(files) AS files FROM hot WHERE first <= 25
), latencies AS (
  SELECT operation, latency_ns, count(*) AS n FROM called WHERE latency_ns IS NOT NULL GROUP BY operation, latency_ns
), ranked AS (
  SELECT operation, latency_ns, sum(n) OVER (PARTITION BY operation ORDER BY latency_ns) AS up_to,
         sum(n) OVER (PARTITION BY operation) AS replies
  FROM latencies
), tails AS (
  SELECT operation, max(replies) AS replies,
         min(CASE WHEN 2 * up_to >= replies THEN latency_ns END) AS p50_ns,
         min(CASE WHEN 100 * up_to >= 99 * replies THEN latency_ns END) AS p99_ns
  FROM ranked GROUP BY operation
), placed AS (
  SELECT file, offset_bytes, sum FROM checksums GROUP BY file, offset_bytes, sum
), contents AS (
  SELECT sum FROM checksums GROUP BY sum
), blocks AS (
  SELECT (SELECT count(*) FROM checksums) AS blocks, (SELECT count(*) FROM placed) AS placed,
         (SELECT count(*) FROM contents) AS contents
), found AS (
  SELECT place, kind, '' AS what, CASE WHEN kind = 'capture-loss' THEN lost ELSE records_damaged END AS part,
         CASE WHEN kind = 'capture-loss' THEN operations ELSE messages END AS whole, 0 AS calls_min
  FROM loss WHERE kind IS NOT NULL
  UNION ALL
  SELECT 0, 'clock-step', '', clock_steps, packets, 0 FROM ledger WHERE clock_steps > 0
  UNION ALL
  SELECT 2, 'not-understood', '', packets_tunneled_too_deep + unknown.packets, ledger.packets, 0
  FROM ledger CROSS JOIN unknown
  WHERE packets_tunneled_too_deep + unknown.packets >= 10
    AND 100 * (packets_tunneled_too_deep + unknown.packets) >= 20 * greatest(ledger.packets, 1)
  UNION ALL
  SELECT 3, 'one-sided', CASE WHEN calls = 0 THEN 'replies' ELSE 'calls' END,
         CASE WHEN calls = 0 THEN greatest(replies_alone, replies_unmatched) ELSE calls END,
         CASE WHEN calls = 0 THEN greatest(replies_alone, replies_unmatched) ELSE calls END, 0
  FROM ledger
  WHERE calls = 0 AND greatest(replies_alone, replies_unmatched) >= 10 OR calls >= 10 AND replies = 0
  UNION ALL
  SELECT 4, 'error-storm', concat(operation, ' ', cast(status AS STRING)), n, calls, 100
  FROM storms CROSS JOIN total
  WHERE n >= 50
    AND 100 * n >= CASE WHEN operation IN ('LOOKUP', 'ACCESS', 'OPEN') AND status = 2 THEN 20 ELSE 1 END * calls
  UNION ALL
  SELECT 5, 'getattr-storm', '', mix.calls, total.calls, 100
  FROM mix CROSS JOIN total CROSS JOIN duration CROSS JOIN (SELECT max(getattrs) AS most FROM pairs) AS asked
  WHERE operation = 'GETATTR' AND 100 * mix.calls >= 20 * total.calls AND most >= 20 AND most >= seconds
  UNION ALL
  SELECT 6, 'misaligned', client, misaligned, transfers, 100 FROM misaligned WHERE first = 1
  UNION ALL
  SELECT 7, 'hot-files', '', n, calls, 100 FROM hot_files CROSS JOIN total
  WHERE files >= 250 AND 100 * n >= 25 * calls
  UNION ALL
  SELECT 8, 'slow-tail', operation, p99_ns, p50_ns, 100
  FROM tails WHERE replies >= 1000 AND p99_ns >= 20 * p50_ns AND p99_ns >= 10000000
  UNION ALL
  SELECT 9, 'duplicates', '', placed - contents, placed, 100 FROM blocks
  WHERE blocks >= 2048 AND 5 * (placed - contents) >= placed
  UNION ALL
  SELECT 10, 'commits', commits.operation, commits.calls, writes.calls, 100
  FROM mix AS writes JOIN mix AS commits
    ON writes.operation = 'WRITE' AND commits.operation = 'COMMIT'
      OR writes.operation = 'SCSI WRITE' AND commits.operation = 'SCSI SYNCHRONIZE CACHE'
  WHERE writes.calls >= 100 AND 2 * commits.calls >= writes.calls
)
SELECT kind, what, cast(part AS BIGINT) AS part, cast(whole AS BIGINT) AS whole
FROM found CROSS JOIN total WHERE total.calls >= calls_min
ORDER BY place, part DESC, what
