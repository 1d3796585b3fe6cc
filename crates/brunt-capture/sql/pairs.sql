-- Client-file pairs with the most operations, bytes or waiting time.
--
-- `pairs` in the report: all that are in the top 25 by one of the three.
WITH loads AS (
  SELECT flows.source AS client, file, count(*) AS operations, sum(CASE WHEN status = 0 THEN moved_bytes ELSE 0 END) AS bytes,
         coalesce(sum(latency_ns), 0) AS time_ns,
         sum(CASE WHEN operation = 'GETATTR' THEN 1 ELSE 0 END) AS getattrs
  FROM operations JOIN flows ON operations.flow = flows.flow
  WHERE file IS NOT NULL GROUP BY flows.source, file
), ranked AS (
  SELECT client, file, operations, bytes, time_ns, getattrs,
         row_number() OVER (ORDER BY operations DESC, client, CASE WHEN file < 0 THEN 1 ELSE 0 END, file) AS by_operations,
         row_number() OVER (ORDER BY bytes DESC, client, CASE WHEN file < 0 THEN 1 ELSE 0 END, file) AS by_bytes,
         row_number() OVER (ORDER BY time_ns DESC, client, CASE WHEN file < 0 THEN 1 ELSE 0 END, file) AS by_time
  FROM loads
)
SELECT client, file, cast(operations AS BIGINT) AS operations, cast(bytes AS BIGINT) AS bytes,
       cast(time_ns AS BIGINT) AS time_ns, cast(getattrs AS BIGINT) AS getattrs,
       cast(by_operations AS BIGINT) AS by_operations, cast(by_bytes AS BIGINT) AS by_bytes,
       cast(by_time AS BIGINT) AS by_time
FROM ranked
WHERE by_operations <= 25 OR by_bytes <= 25 AND bytes > 0 OR by_time <= 25 AND time_ns > 0
ORDER BY by_operations
