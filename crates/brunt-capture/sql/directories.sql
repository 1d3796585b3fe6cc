-- Directories with the most operations on the files directly in them.
--
-- `directories` in the report: all that are in the top 25 by operations, bytes or time. A file belongs to the directory
-- in which the last lookup, open or listing that named the file found it.
WITH told AS (
  SELECT names.leads_to AS file, names.file AS directory, names.name AS name, operations.completion_id AS completion_id,
         0 AS listed, names.position AS place
  FROM names JOIN operations ON names.record_id = operations.record_id
  WHERE names.leads_to IS NOT NULL AND names.name IS NOT NULL
  UNION ALL
  SELECT entries.file AS file, operations.file AS directory, entries.name AS name,
         operations.completion_id AS completion_id, 1 AS listed, entries.entry AS place
  FROM entries JOIN operations ON entries.record_id = operations.record_id
  WHERE entries.file IS NOT NULL
), last_told AS (
  SELECT file, directory,
         row_number() OVER (PARTITION BY file ORDER BY completion_id DESC, listed DESC, place DESC) AS last_first
  FROM told WHERE name NOT IN ('.', '..')
), loads AS (
  SELECT directory AS file, count(*) AS operations, sum(CASE WHEN status = 0 THEN moved_bytes ELSE 0 END) AS bytes, coalesce(sum(latency_ns), 0) AS time_ns
  FROM operations JOIN last_told ON operations.file = last_told.file AND last_first = 1
  WHERE directory IS NOT NULL GROUP BY directory
), ranked AS (
  SELECT file, operations, bytes, time_ns,
         row_number() OVER (ORDER BY operations DESC, CASE WHEN file < 0 THEN 1 ELSE 0 END, file) AS by_operations,
         row_number() OVER (ORDER BY bytes DESC, CASE WHEN file < 0 THEN 1 ELSE 0 END, file) AS by_bytes,
         row_number() OVER (ORDER BY time_ns DESC, CASE WHEN file < 0 THEN 1 ELSE 0 END, file) AS by_time
  FROM loads
)
SELECT file, cast(operations AS BIGINT) AS operations, cast(bytes AS BIGINT) AS bytes, cast(time_ns AS BIGINT) AS time_ns,
       cast(by_operations AS BIGINT) AS by_operations, cast(by_bytes AS BIGINT) AS by_bytes,
       cast(by_time AS BIGINT) AS by_time
FROM ranked
WHERE by_operations <= 25 OR by_bytes <= 25 AND bytes > 0 OR by_time <= 25 AND time_ns > 0
ORDER BY by_operations
