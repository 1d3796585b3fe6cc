-- Failed operations by status: how many clients are affected, and which one the most.
--
-- `errors` in the report, which also names each status.
WITH failed AS (
  SELECT operation, operations.protocol AS protocol, status, flows.source AS client, count(*) AS n
  FROM operations JOIN flows ON operations.flow = flows.flow
  WHERE status <> 0 GROUP BY operation, operations.protocol, status, flows.source
), ranked AS (
  SELECT operation, protocol, status, client, n,
         row_number() OVER (PARTITION BY operation, protocol, status ORDER BY n DESC, client DESC) AS place
  FROM failed
)
SELECT operation, protocol, status, cast(sum(n) AS BIGINT) AS errors, cast(count(*) AS BIGINT) AS clients,
       max(CASE WHEN place = 1 THEN client END) AS first_client,
       cast(max(CASE WHEN place = 1 THEN n END) AS BIGINT) AS first_client_errors
FROM ranked GROUP BY operation, protocol, status
ORDER BY errors DESC, operation, protocol, status
