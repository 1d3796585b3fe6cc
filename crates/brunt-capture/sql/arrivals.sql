-- Burstiness of arrivals: the busiest interval of 10 ms to 100 s, and the index of dispersion.
--
-- Intervals begin at multiples of their width since 1970. The index of dispersion is the variance of the number of
-- requests per interval divided by its mean: 1 for independent arrivals (Poisson), more for bursts.
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
