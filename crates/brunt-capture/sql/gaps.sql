-- Times between consecutive requests to a server, by powers of two.
--
-- Requests are ordered by the times of their first bytes. A row counts gaps of at most `up_to_ns` and
-- more than half of that.
WITH called AS (
  SELECT flows.destination AS server, request_first_ns
  FROM operations JOIN flows ON operations.flow = flows.flow
), followed AS (
  SELECT server,
         request_first_ns - lag(request_first_ns) OVER (PARTITION BY server ORDER BY request_first_ns) AS gap_ns
  FROM called
), sized AS (
  SELECT server, gap_ns, cast(power(2, CASE WHEN gap_ns > 1 THEN length(bin(gap_ns - 1)) ELSE 0 END) AS BIGINT) AS up_to_ns
  FROM followed WHERE gap_ns IS NOT NULL
)
SELECT server, up_to_ns, count(*) AS gaps, cast(sum(gap_ns) AS BIGINT) AS sum_ns
FROM sized GROUP BY server, up_to_ns ORDER BY server, up_to_ns
