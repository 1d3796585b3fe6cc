-- Operations, bytes and losses of each window.
--
-- An interrupted window has several rows, which are added up. Rates are per second of captured time.
SELECT window_from, cast(sum(operations) AS BIGINT) AS operations, cast(sum(errors) AS BIGINT) AS errors,
       cast(sum(read_bytes) AS BIGINT) AS read_bytes, cast(sum(written_bytes) AS BIGINT) AS written_bytes,
       cast(round(1000000000.0 * sum(operations) / greatest(sum(last_ns - first_ns), 1)) AS BIGINT) AS operations_per_s,
       cast(sum(packets) AS BIGINT) AS packets, cast(sum(packets_dropped) AS BIGINT) AS packets_dropped,
       cast(sum(operations_lost) AS BIGINT) AS operations_lost, cast(sum(gap_before_ns) AS BIGINT) AS gap_ns,
       cast(sum(findings) AS BIGINT) AS findings
FROM windows GROUP BY window_from ORDER BY window_from
