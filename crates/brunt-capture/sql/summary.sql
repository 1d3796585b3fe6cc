-- Start and end of the capture, totals, and whether its counters add up.
--
-- `start_ns`, `duration_s`, `operations`, `operations_per_s`, `wire_gbit_per_s` and `valid` in the report.
WITH ledger AS (
  SELECT * FROM statistics
  ORDER BY time_ns DESC, packets DESC, calls DESC, calls_open_at_end DESC, trace_rows_lost DESC LIMIT 1
), times AS (
  SELECT time_ns AS at_ns FROM packets UNION ALL SELECT request_first_ns AS at_ns FROM operations
), ends AS (
  SELECT min(at_ns) AS start_ns, max(at_ns) - min(at_ns) AS duration_ns FROM times
), counted AS (
  SELECT count(*) AS operations FROM operations
)
SELECT start_ns, duration_ns, cast(operations AS BIGINT) AS operations, packets, wire_bytes,
       cast(1000000000 * operations AS DOUBLE) / nullif(duration_ns, 0) AS operations_per_s,
       cast(8 * wire_bytes AS DOUBLE) / nullif(duration_ns, 0) AS wire_gbit_per_s,
       calls_answered + calls_timed_out + calls_evicted + calls_aborted + calls_repeated + calls_open_at_end + calls_open
         = calls AND replies = calls_answered + replies_unmatched AS valid
FROM ledger CROSS JOIN ends CROSS JOIN counted
