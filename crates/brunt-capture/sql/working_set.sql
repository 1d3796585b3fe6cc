-- Working set in blocks of 4,096 bytes: of all transfers, and of non-sequential reads.
--
-- Exact, unlike the working sets in the report's `profile`, which are estimated in bounded memory, with a standard
-- error of 0.8 %. At most 4,097 blocks of one operation are counted.
WITH digits AS (
  SELECT * FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15)) AS d(n)
), places AS (
  SELECT cast(a.n + 16 * b.n + 256 * c.n AS BIGINT) AS place
  FROM digits AS a CROSS JOIN digits AS b CROSS JOIN digits AS c
  UNION ALL SELECT cast(4096 AS BIGINT) AS place
), calls AS (
  SELECT file, direction, moved_bytes, coalesce(offset_bytes, 0) AS offset_bytes, record_id,
         record_id - record_id % 281474976710656 AS parser, flows.source AS client
  FROM operations JOIN flows ON operations.flow = flows.flow
  WHERE direction IS NOT NULL AND status = 0 AND file IS NOT NULL
), followed AS (
  SELECT file, direction, moved_bytes, offset_bytes,
         lag(offset_bytes + moved_bytes) OVER (
           PARTITION BY parser, client, file, direction ORDER BY record_id) AS expected_bytes
  FROM calls
), ranges AS (
  SELECT file, offset_bytes - offset_bytes % 4096 AS first_bytes,
         offset_bytes + moved_bytes - 1 - (offset_bytes + moved_bytes - 1) % 4096 AS last_bytes,
         max(CASE WHEN direction = 0 AND (expected_bytes IS NULL OR expected_bytes <> offset_bytes) THEN 1 ELSE 0 END)
           AS random_read
  FROM followed WHERE moved_bytes > 0
  GROUP BY file, offset_bytes - offset_bytes % 4096,
           offset_bytes + moved_bytes - 1 - (offset_bytes + moved_bytes - 1) % 4096
), blocks AS (
  SELECT file, first_bytes + 4096 * place AS block_bytes, max(random_read) AS random_read
  FROM ranges JOIN places ON first_bytes + 4096 * place <= last_bytes
  GROUP BY file, first_bytes + 4096 * place
)
SELECT cast(4096 * count(*) AS BIGINT) AS working_set_bytes,
       cast(4096 * coalesce(sum(random_read), 0) AS BIGINT) AS random_read_working_set_bytes
FROM blocks
