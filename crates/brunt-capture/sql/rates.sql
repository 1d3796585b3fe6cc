-- Rates over time, in at most 512 intervals.
--
-- `intervals` in the report. They begin at multiples of their width since 1970: 10 ms, doubled until 512 of them cover
-- the time from the first packet to the last. The first interval begins and the last one ends with a packet.
WITH digits AS (
  SELECT * FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7)) AS d(n)
), places AS (
  SELECT cast(a.n + 8 * b.n + 64 * c.n AS BIGINT) AS place FROM digits AS a CROSS JOIN digits AS b CROSS JOIN digits AS c
), happened AS (
  SELECT time_ns AS at_ns, wire_bytes, 0 AS operations, 0 AS read_bytes, 0 AS write_bytes, 0 AS errors FROM packets
  UNION ALL
  SELECT request_first_ns AS at_ns, 0 AS wire_bytes, 1 AS operations,
         CASE WHEN direction = 0 AND status = 0 THEN moved_bytes ELSE 0 END AS read_bytes,
         CASE WHEN direction = 1 AND status = 0 THEN moved_bytes ELSE 0 END AS write_bytes,
         CASE WHEN status <> 0 THEN 1 ELSE 0 END AS errors
  FROM operations
), ends AS (
  SELECT min(at_ns) AS first_ns, max(at_ns) AS last_ns FROM happened
), widths AS (
  -- Engines may compute this before they filter places, so it must not overflow for any place.
  SELECT 10000000 * cast(power(2, least(place, 30)) AS BIGINT) AS width_ns FROM places WHERE place <= 30
), chosen AS (
  SELECT first_ns, last_ns, min(width_ns) AS width_ns FROM ends CROSS JOIN widths
  WHERE (last_ns - last_ns % width_ns) - (first_ns - first_ns % width_ns) < 512 * width_ns
  GROUP BY first_ns, last_ns
), grid AS (
  SELECT first_ns - first_ns % width_ns + place * width_ns AS from_ns, first_ns, last_ns, width_ns
  FROM chosen CROSS JOIN places WHERE first_ns - first_ns % width_ns + place * width_ns <= last_ns
), placed AS (
  -- If the capture's last moment is the start of an interval, its events count in the previous interval.
  SELECT at_ns - at_ns % width_ns
           - CASE WHEN at_ns = last_ns AND at_ns % width_ns = 0 AND first_ns < last_ns THEN width_ns ELSE 0 END AS from_ns,
         wire_bytes, operations, read_bytes, write_bytes, errors
  FROM happened CROSS JOIN chosen
), summed AS (
  SELECT from_ns, sum(wire_bytes) AS wire_bytes, sum(operations) AS operations, sum(read_bytes) AS read_bytes,
         sum(write_bytes) AS write_bytes, sum(errors) AS errors
  FROM placed GROUP BY from_ns
)
SELECT greatest(grid.from_ns, first_ns) AS from_ns, least(grid.from_ns + width_ns, last_ns) AS until_ns,
       cast(coalesce(operations, 0) AS BIGINT) AS operations, cast(coalesce(wire_bytes, 0) AS BIGINT) AS wire_bytes,
       cast(coalesce(read_bytes, 0) AS BIGINT) AS read_bytes, cast(coalesce(write_bytes, 0) AS BIGINT) AS write_bytes,
       cast(coalesce(errors, 0) AS BIGINT) AS errors
FROM grid LEFT JOIN summed ON grid.from_ns = summed.from_ns
WHERE grid.from_ns < last_ns OR first_ns = last_ns
ORDER BY from_ns
