-- SCSI commands and task management functions by logical unit, and their outcomes.
--
-- `first_r2t_sum_ns` is the time from a request's first byte to the target's first R2T, summed over the writes that had one.
WITH commands AS (
  SELECT operations.operation AS operation, scsi_commands.file AS file, lun, operations.status AS status,
         operations.latency_ns AS latency_ns, data_in_bytes, data_out_bytes, blocks, r2ts, first_r2t_ns, sense_key,
         residual_bytes, aborted_by
  FROM scsi_commands JOIN operations ON scsi_commands.record_id = operations.record_id
)
SELECT file, lun, operation, count(*) AS commands, count(latency_ns) AS replies,
       cast(sum(CASE WHEN status <> 0 THEN 1 ELSE 0 END) AS BIGINT) AS errors,
       count(sense_key) AS senses, count(aborted_by) AS aborted,
       cast(sum(CASE WHEN residual_bytes <> 0 THEN 1 ELSE 0 END) AS BIGINT) AS residuals,
       cast(coalesce(sum(blocks), 0) AS BIGINT) AS blocks, cast(sum(data_in_bytes) AS BIGINT) AS in_bytes,
       cast(sum(data_out_bytes) AS BIGINT) AS out_bytes, cast(sum(r2ts) AS BIGINT) AS r2ts,
       cast(coalesce(sum(first_r2t_ns), 0) AS BIGINT) AS first_r2t_sum_ns
FROM commands GROUP BY file, lun, operation ORDER BY commands DESC, file, lun, operation
