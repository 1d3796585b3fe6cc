-- What packets carry that is not understood.
--
-- `not_understood` of the report, which adds what a number usually stands for.
SELECT not_understood AS name, count(*) AS packets, cast(sum(wire_bytes) AS BIGINT) AS bytes
FROM packets WHERE not_understood IS NOT NULL GROUP BY not_understood ORDER BY packets DESC, name
