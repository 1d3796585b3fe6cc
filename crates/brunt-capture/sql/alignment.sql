-- Alignment of reads and writes: the largest power of two, up to 1 MiB, of which the offset is a multiple.
--
-- The report counts rows below 4,096 as `misaligned`. `whole` counts transfers whose length is also a multiple of that
-- power.
WITH transfers AS (
  SELECT direction, moved_bytes, CASE
      WHEN offset_bytes IS NULL THEN 1048576
      WHEN offset_bytes % 1048576 = 0 THEN 1048576 WHEN offset_bytes % 524288 = 0 THEN 524288
      WHEN offset_bytes % 262144 = 0 THEN 262144 WHEN offset_bytes % 131072 = 0 THEN 131072
      WHEN offset_bytes % 65536 = 0 THEN 65536 WHEN offset_bytes % 32768 = 0 THEN 32768
      WHEN offset_bytes % 16384 = 0 THEN 16384 WHEN offset_bytes % 8192 = 0 THEN 8192
      WHEN offset_bytes % 4096 = 0 THEN 4096 WHEN offset_bytes % 2048 = 0 THEN 2048
      WHEN offset_bytes % 1024 = 0 THEN 1024 WHEN offset_bytes % 512 = 0 THEN 512 ELSE 1 END AS aligned_bytes
  FROM operations WHERE direction IS NOT NULL AND status = 0
)
SELECT CASE WHEN direction = 0 THEN 'read' ELSE 'write' END AS direction, cast(aligned_bytes AS BIGINT) AS aligned_bytes,
       count(*) AS transfers, cast(sum(CASE WHEN moved_bytes % aligned_bytes = 0 THEN 1 ELSE 0 END) AS BIGINT) AS whole,
       cast(sum(moved_bytes) AS BIGINT) AS bytes
FROM transfers GROUP BY direction, aligned_bytes ORDER BY direction, aligned_bytes
