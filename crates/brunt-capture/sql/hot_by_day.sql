-- The ten files and the ten clients with the most operations on each day (UTC), from the hot lists of its windows.
--
-- A window lists only its hottest entries, so sums may lack a file's operations in windows in which it was not hot.
WITH loads AS (
  SELECT window_from_ns - window_from_ns % 86400000000000 AS day_ns, kind, name, sum(operations) AS operations,
         sum(bytes) AS bytes, sum(time_ns) AS time_ns, count(*) AS windows
  FROM window_hot WHERE kind IN ('file', 'client')
  GROUP BY window_from_ns - window_from_ns % 86400000000000, kind, name
), ranked AS (
  SELECT day_ns, kind, name, operations, bytes, time_ns, windows,
         row_number() OVER (PARTITION BY day_ns, kind ORDER BY operations DESC, name) AS place
  FROM loads
)
SELECT day_ns, kind, name, cast(operations AS BIGINT) AS operations, cast(bytes AS BIGINT) AS bytes,
       cast(time_ns AS BIGINT) AS time_ns, cast(windows AS BIGINT) AS windows
FROM ranked WHERE place <= 10 ORDER BY day_ns, kind, place
