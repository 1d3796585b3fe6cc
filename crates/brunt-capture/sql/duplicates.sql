-- Share of duplicate data and of zeros.
--
-- Exact, unlike `duplicates` in the report, which estimates distinct blocks in bounded memory and is a few percent off.
WITH placed AS (
  SELECT file, offset_bytes, sum FROM checksums GROUP BY file, offset_bytes, sum
), contents AS (
  SELECT sum FROM checksums GROUP BY sum
), blocks AS (
  -- The number is the checksum of 512 zeros.
  SELECT count(*) AS n, coalesce(sum(CASE WHEN write THEN 1 ELSE 0 END), 0) AS written,
         coalesce(sum(CASE WHEN sum = -5577573321276489604 THEN 1 ELSE 0 END), 0) AS zeros
  FROM checksums
), counted AS (
  SELECT (SELECT count(*) FROM placed) AS placed, (SELECT count(*) FROM contents) AS contents
)
SELECT cast(n - written AS BIGINT) AS blocks_read, cast(written AS BIGINT) AS blocks_written,
       cast(zeros AS BIGINT) AS blocks_of_zeros, cast(placed AS BIGINT) AS different_blocks,
       cast(contents AS BIGINT) AS different_contents,
       cast(zeros AS DOUBLE) / nullif(n, 0) AS zero_share,
       1e0 - cast(contents AS DOUBLE) / nullif(placed, 0) AS duplicate_share
FROM blocks CROSS JOIN counted
