-- The loss ledger: what the capture saw, and what it lost.
--
-- `ledger` of the report: the last row of `statistics`.
SELECT time_ns, packets, wire_bytes, packets_cut, packets_dropped, packets_not_ip, packets_other_transport,
       packets_unreadable, packets_tunneled_too_deep, tunnels_vxlan, tunnels_geneve, tunnels_gre, tunnels_erspan_1,
       tunnels_erspan_2, tunnels_erspan_3, tunnels_ip_in_ip, tunnels_mpls, tunnels_pppoe, fragments,
       fragmented_packets_lost, connections, connections_evicted, segments_reordered, bytes_retransmitted, holes,
       hole_bytes, gaps_no_room, gap_bytes_no_room, stream_jumps, slow_mode_entries, slow_mode_bytes, bytes_unclaimed,
       records_damaged, records_lost, records_oversized, calls, calls_repeated, calls_answered, calls_timed_out,
       calls_evicted, calls_aborted, calls_open_at_end, calls_open, replies, replies_unmatched, bodies_malformed,
       data_bytes, data_bytes_missing, blocks_summed, trace_rows_lost, trace_parts_deleted, trace_rows_deleted,
       trace_bytes_deleted, pcap_packets_lost, compounds_unparsed, attributes_unparsed, replies_alone,
       iscsi_pdus_rejected, iscsi_data_without_task
FROM statistics
ORDER BY time_ns DESC, packets DESC, calls DESC, calls_open_at_end DESC, trace_rows_lost DESC LIMIT 1
