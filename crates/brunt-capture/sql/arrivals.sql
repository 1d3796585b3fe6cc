-- How unevenly requests arrive: the busiest stretch of 10 ms to 100 s, and the index of dispersion.
--
-- A stretch begins at a multiple of its width since 1970. The index of dispersion is the variance of the number of requests
-- in a stretch by its mean: 1 if they arrive independently of each other (Poisson), more if they come in bursts.
WITH digits AS (
  SELECT * FROM (VALUES (0), (1), (2), (3), (4)) AS d(n)
), widths AS (
  SELECT cast(10000000 * power(10, n) AS BIGINT) AS width_ns FROM digits
), stretches AS (
  SELECT width_ns, request_first_ns - request_first_ns % width_ns AS from_ns, count(*) AS requests
  FROM operations CROSS JOIN widths GROUP BY width_ns, request_first_ns - request_first_ns % width_ns
), summed AS (
  SELECT width_ns, cast(round((max(from_ns) - min(from_ns)) / width_ns) AS BIGINT) + 1 AS stretches,
         cast(sum(requests) AS BIGINT) AS requests, max(requests) AS busiest,
         cast(sum(requests * requests) AS BIGINT) AS squares
  FROM stretches GROUP BY width_ns
)
SELECT width_ns, stretches, requests, busiest, squares,
       cast(squares AS DOUBLE) / requests - cast(requests AS DOUBLE) / stretches AS dispersion
FROM summed ORDER BY width_ns
