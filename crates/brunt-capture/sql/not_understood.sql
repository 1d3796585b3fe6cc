-- Packets of unsupported protocols.
--
-- `not_understood` in the report, which also shows the usual meaning of each number.
SELECT not_understood AS name, count(*) AS packets, cast(sum(wire_bytes) AS BIGINT) AS bytes
FROM packets WHERE not_understood IS NOT NULL GROUP BY not_understood ORDER BY packets DESC, name
