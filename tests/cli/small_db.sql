-- small_db.sql - a database of six allocations, written by hand, so that every figure of the analyzer's commands can be checked with a pencil.
--
-- Use:    cat "$SCHEMA/tables.sql" "$SCHEMA/views.sql" "$SCHEMA/../tests/cli/small_db.sql" | sqlite3 small.db
-- Story:  demo (process 1) allocates and forks a child (process 2), which SIGKILL ends. Times in seconds:
--
--     process heap    bytes  stack            from  to
--     1       malloc  1000   main;load;parse  1     4
--     1       malloc   500   main;load        2     -      live at exit and at the end
--     1       mmap    4096   main             3     8.5
--     1       malloc   200   main;libfoo      5     5.5    freed before the thread's next allocation: temporary
--     1       malloc   300   main;(evil)      6     9.5    by thread 2; freed between exit (9) and end (10)
--     2       malloc    64   main;load;parse  7     -      killed at 8
--
-- Live bytes of process 1:  malloc  1: 1000, 2: 1500, 4: 500, 5: 700, 5.5: 500, 6: 800, 9.5: 500         peak 1500 at 2
--                           mmap    3: 4096, 8.5: 0                                                      peak 4096 at 3
--                           both    1: 1000, 2: 1500, 3: 5596, 4: 4596, 5: 4796, 5.5: 4596, 6: 4896, 8.5: 800, 9.5: 500   peak 5596 at 3
-- The function of stack 5 is as bad as a name can be: quotes, comma, backslash, escape sequence, newline, right-to-left mark, a broken byte.

INSERT INTO meta VALUES ('schema_version', '12'), ('tool_version', '0.1.0');
INSERT INTO trace(id, path, host, job, format_version, start_unix_ns, clock, clock_offset_ns, sample_bytes, complete, command, tool_version,
                  file_bytes, sound_bytes, cut_reason, events, end_ns)
VALUES (1, 'small.tmk', 'node1', NULL, '1.0', 1700000000000000000, 'tsc', 0, 0, 1, './demo --fast', '0.1.0', 2048, 2048, NULL, 10, 10000000000);
INSERT INTO process(id, trace_id, pid, parent_id, rank, local_rank, world_size, host, exe, command, start_ns, exit_ns, end_ns, end_kind, end_code,
                    forked, execed, recorded, inherited_frees, estimated)
VALUES (1, 1, 100, NULL, NULL, NULL, NULL, 'node1', '/usr/bin/demo', './demo --fast', 0, 9000000000, 10000000000, 'exit', 0, 0, 0, 1, 0, 0),
       (2, 1, 101, 1, NULL, NULL, NULL, 'node1', '/usr/bin/demo', './demo --fast', 6500000000, 8000000000, 8000000000, 'signal', 9, 1, 0, 1, 2, 0);
INSERT INTO thread(id, process_id, tid, name, start_ns, end_ns)
VALUES (1, 1, 100, 'demo', 0, NULL), (2, 1, 102, 'worker', 5500000000, 9000000000), (3, 2, 101, 'demo', 6500000000, NULL);
INSERT INTO heap(id, process_id, name, kind, device, parent_id, is_root, estimated)
VALUES (1, 1, 'malloc', 'host', NULL, NULL, 1, 0), (2, 1, 'mmap', 'mapping', NULL, NULL, 1, 0), (3, 2, 'malloc', 'host', NULL, NULL, 1, 0);
INSERT INTO module(id, process_id, path, build_id, base_address, low_address, size_bytes, load_ns, unload_ns)
VALUES (1, 1, '/usr/bin/demo', 'abcd', 4194304, 4194304, 65536, 0, NULL), (2, 1, '/usr/lib/libfoo.so.1', NULL, 8388608, 8388608, 65536, 0, NULL);
INSERT INTO frame(id, kind, function, file, line, module_id, module_offset, is_wrapper)
VALUES (1, 'native', 'main', '/src/demo.c', 10, 1, 256, 0), (2, 'native', 'load', '/src/demo.c', 20, 1, 512, 0),
       (3, 'native', 'parse', '/src/demo.c', 30, 1, 768, 0), (4, 'native', NULL, NULL, NULL, 2, 4660, 0),
       (5, 'native', CAST(X'226576696C22' || ', a;b\' || X'1B' || '[31m' || char(10) || char(8238) || X'FF' AS TEXT), '/src/evil,"file".c', 7, 1, 1024, 0);
INSERT INTO stack(id, parent_id, frame_id, depth, site_frame_id)
VALUES (1, 0, 1, 1, 1), (2, 1, 2, 2, 2), (3, 2, 3, 3, 3), (4, 1, 4, 2, 4), (5, 1, 5, 2, 5);
INSERT INTO allocation_origin(id, process_id, heap_id, thread_id, api)
VALUES (1, 1, 1, 1, 'malloc'), (2, 1, 2, 1, 'mmap'), (3, 1, 1, 2, 'calloc'), (4, 2, 3, 3, 'malloc');
INSERT INTO allocation_packed(id, origin_id, address, size_bytes, slack_bytes, alloc_ns, stack_id, lifetime_ns, free_thread, realloc_of_id, weight)
VALUES (1, 1, 4096, 1000, 8, 1000000000, 3, 3000000000, 0, NULL, NULL),
       (2, 1, 16384, 200, 8, 5000000000, 4, 500000000, -1, NULL, NULL),
       (3, 2, 65536, 4096, NULL, 3000000000, 1, 5500000000, 0, NULL, NULL),
       (4, 3, 20480, 300, 4, 6000000000, 5, 3500000000, 1, NULL, NULL),
       (5, 1, 8192, 500, 4, 2000000000, 2, NULL, NULL, NULL, NULL),
       (6, 4, 4096, 64, 8, 7000000000, 3, NULL, NULL, NULL, NULL);
INSERT INTO mark(id, process_id, thread_id, name, ts_ns) VALUES (1, 1, 1, 'loaded', 3500000000);
INSERT INTO sample(trace_id, process_id, name, ts_ns, value)
VALUES (1, 1, 'rss', 1000000000, 1000000), (1, 1, 'rss', 5000000000, 2000000), (1, NULL, 'cgroup', 1000000000, 5000000);
INSERT INTO note(process_id, ts_ns, kind, text) VALUES (2, 8000000000, 'end', 'killed by signal 9');

INSERT INTO heap_total(process_id, heap_id, allocations, allocated_bytes, frees, freed_bytes, temporary, temporary_bytes, peak_ns, peak_bytes, peak_count,
                       live_at_exit_bytes, live_at_exit_count, live_at_end_bytes, live_at_end_count)
VALUES (1, 1, 4, 2000, 3, 1500, 1, 200, 2000000000, 1500, 2, 800, 2, 500, 1),
       (1, 2, 1, 4096, 1, 4096, 0, 0, 3000000000, 4096, 1, 0, 0, 0, 0),
       (1, 0, 5, 6096, 4, 5596, 1, 200, 3000000000, 5596, 3, 800, 2, 500, 1),
       (2, 3, 1, 64, 0, 0, 0, 0, 7000000000, 64, 1, 64, 1, 64, 1),
       (2, 0, 1, 64, 0, 0, 0, 0, 7000000000, 64, 1, 64, 1, 64, 1);
INSERT INTO site_total(process_id, heap_id, stack_id, allocations, allocated_bytes, frees, freed_bytes, temporary, temporary_bytes, peak_bytes, peak_count,
                       process_peak_bytes, process_peak_count, live_at_exit_bytes, live_at_exit_count, live_at_end_bytes, live_at_end_count)
VALUES (1, 1, 2, 1, 500, 0, 0, 0, 0, 500, 1, 500, 1, 500, 1, 500, 1),
       (1, 1, 3, 1, 1000, 1, 1000, 0, 0, 1000, 1, 1000, 1, 0, 0, 0, 0),
       (1, 1, 4, 1, 200, 1, 200, 1, 200, 0, 0, 0, 0, 0, 0, 0, 0),
       (1, 1, 5, 1, 300, 1, 300, 0, 0, 0, 0, 0, 0, 300, 1, 0, 0),
       (1, 2, 1, 1, 4096, 1, 4096, 0, 0, 4096, 1, 4096, 1, 0, 0, 0, 0),
       (2, 3, 3, 1, 64, 0, 0, 0, 0, 64, 1, 64, 1, 64, 1, 64, 1);
INSERT INTO timeline(process_id, heap_id, ts_ns, live_bytes, live_count)
VALUES (1, 1, 1000000000, 1000, 1), (1, 1, 2000000000, 1500, 2), (1, 1, 4000000000, 500, 1), (1, 1, 5000000000, 700, 2), (1, 1, 5500000000, 500, 1),
       (1, 1, 6000000000, 800, 2), (1, 1, 9500000000, 500, 1),
       (1, 2, 3000000000, 4096, 1), (1, 2, 8500000000, 0, 0),
       (1, 0, 1000000000, 1000, 1), (1, 0, 2000000000, 1500, 2), (1, 0, 3000000000, 5596, 3), (1, 0, 4000000000, 4596, 2), (1, 0, 5000000000, 4796, 3),
       (1, 0, 5500000000, 4596, 2), (1, 0, 6000000000, 4896, 3), (1, 0, 8500000000, 800, 2), (1, 0, 9500000000, 500, 1),
       (2, 3, 7000000000, 64, 1), (2, 0, 7000000000, 64, 1);
INSERT INTO snapshot(id, process_id, label, ts_ns, heap_id, live_bytes, live_count, detailed)
VALUES (1, 1, 'peak', 2000000000, 1, 1500, 2, 1), (2, 1, 'peak', 3000000000, 2, 4096, 1, 1), (3, 1, 'process-peak', 3000000000, 1, 1500, 2, 1),
       (4, 1, 'process-peak', 3000000000, 2, 4096, 1, 1), (5, 1, 'exit', 9000000000, 1, 800, 2, 1), (6, 1, 'end', 10000000000, 1, 500, 1, 1),
       (7, 2, 'peak', 7000000000, 3, 64, 1, 1), (8, 2, 'process-peak', 7000000000, 3, 64, 1, 1), (9, 2, 'exit', 8000000000, 3, 64, 1, 1),
       (10, 2, 'end', 8000000000, 3, 64, 1, 1);
INSERT INTO snapshot_stack(snapshot_id, stack_id, live_bytes, live_count)
VALUES (1, 3, 1000, 1), (1, 2, 500, 1), (2, 1, 4096, 1), (3, 3, 1000, 1), (3, 2, 500, 1), (4, 1, 4096, 1), (5, 2, 500, 1), (5, 5, 300, 1),
       (6, 2, 500, 1), (7, 3, 64, 1), (8, 3, 64, 1), (9, 3, 64, 1), (10, 3, 64, 1);
