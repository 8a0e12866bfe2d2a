-- views.sql - the stable surface of a tidemark database: what reports show and what people query.
--
-- Flow:   tables.sql, filled by import -> here -> every command of tidemark, and any SQLite tool.
-- Cost:   every view but `allocation` reads aggregates that import filled; none scans allocations.
-- Common: `heap` is heap.name; in peak, heap_summary and memory_timeline heap NULL is the whole process over its root heaps.
--         `function`, `file`, `line` beside a stack_id are those of its site: the innermost Python frame, else the innermost frame that is no
--         allocator's wrapper. `module` is the path of the site's module. `estimated` is 1 where numbers come from sampling.
-- Times in ns since the start of the earliest trace, sizes in bytes as requested, NULL is unknown.

-- Indexes first, which import makes when every row is there. allocation_packed has none on purpose: each would cost more than the rest of the import.
CREATE INDEX process_by_trace ON process(trace_id);
CREATE INDEX thread_by_process ON thread(process_id);
CREATE INDEX heap_by_process ON heap(process_id, name);
CREATE INDEX timeline_by_heap ON timeline(process_id, heap_id, ts_ns);
CREATE INDEX sample_by_process ON sample(process_id, name, ts_ns);
CREATE INDEX checkpoint_by_time ON checkpoint(trace_id, ts_ns);
CREATE INDEX snapshot_by_process ON snapshot(process_id, label, heap_id);
CREATE INDEX step_by_process ON step(process_id, start_ns);
CREATE INDEX pool_state_by_heap ON pool_state(heap_id, ts_ns);
CREATE INDEX scope_aggregate_by_name ON scope_aggregate(name, process_id);

-- One row for each block. free_ns NULL: never freed. usable_bytes: what the allocator really gave, NULL unknown. realloc_of_id: the block that realloc
-- or mremap turned into this one; for parts of a split mapping, the part that was given back first. weight: blocks it stands for, 1.0 unless sampled.
-- scope_id, free_scope_id: the innermost scope that was open on the thread that allocated, and on the one that freed; 0: [unscoped].
CREATE VIEW allocation AS
SELECT a.id, o.process_id, o.heap_id, o.thread_id, a.address, a.size_bytes, a.size_bytes + a.slack_bytes AS usable_bytes, o.api, a.alloc_ns,
       a.stack_id, coalesce(a.scope_id, 0) AS scope_id, a.alloc_ns + a.lifetime_ns AS free_ns,
       CASE a.free_thread WHEN 0 THEN o.thread_id ELSE a.free_thread END AS free_thread_id,
       CASE WHEN a.free_thread IS NOT NULL THEN coalesce(a.free_scope_id, 0) END AS free_scope_id, a.realloc_of_id, coalesce(a.weight, 1.0) AS weight
FROM allocation_packed a JOIN allocation_origin o ON o.id = a.origin_id;

-- One row for each frame, as text: its function, else module+offset, else the address. A semicolon in a name becomes a colon: it separates frames.
CREATE VIEW frame_text AS
SELECT f.id AS frame_id,
       coalesce(replace(f.function, ';', ':'),
                replace(replace(m.path, rtrim(m.path, replace(m.path, '/', '')), ''), ';', ':') || printf('+0x%x', f.module_offset),
                printf('0x%x', f.module_offset), '?') AS text
FROM frame f LEFT JOIN module m ON m.id = f.module_id;

-- A whole stack as text, outermost first: main;load;parse. Built for the rows that are read only: always say WHERE stack_id = ... or join.
CREATE VIEW stack_text AS
SELECT s.id AS stack_id,
       coalesce((WITH RECURSIVE up(parent_id, frame_id, n) AS (
                         SELECT s.parent_id, s.frame_id, 0
                         UNION ALL SELECT p.parent_id, p.frame_id, up.n + 1 FROM up JOIN stack p ON p.id = up.parent_id)
                 SELECT group_concat(text, ';')
                 FROM (SELECT t.text FROM up JOIN frame_text t ON t.frame_id = up.frame_id ORDER BY up.n DESC)), '') AS text
FROM stack s;

-- The run of each heap and process in one row; columns as tables.sql describes them at heap_total. A process that could not be recorded
-- (process.recorded = 0) has none.
CREATE VIEW heap_summary AS
SELECT t.process_id, h.name AS heap, t.allocations, t.allocated_bytes, t.frees, t.freed_bytes, t.temporary, t.temporary_bytes, t.peak_ns, t.peak_bytes,
       t.peak_count, t.live_at_exit_bytes, t.live_at_exit_count, t.live_at_end_bytes, t.live_at_end_count, coalesce(h.estimated, p.estimated) AS estimated
FROM heap_total t JOIN process p ON p.id = t.process_id LEFT JOIN heap h ON h.id = t.heap_id;

-- When each heap and each process had most bytes live, and how many.
CREATE VIEW peak AS
SELECT process_id, heap, peak_ns AS ts_ns, peak_bytes AS live_bytes, peak_count AS live_count, estimated FROM heap_summary;

-- Every call stack that allocated. live_bytes is what it left at the end of the process; peak_bytes what it had live at the peak of its heap,
-- process_peak_bytes at the peak of its process.
CREATE VIEW site AS
SELECT t.process_id, h.name AS heap, t.stack_id, t.allocations, t.allocated_bytes, t.frees, t.freed_bytes, t.temporary, t.temporary_bytes,
       t.live_at_end_bytes AS live_bytes, t.live_at_end_count AS live_count, t.live_at_exit_bytes, t.live_at_exit_count, t.peak_bytes, t.peak_count,
       t.process_peak_bytes, t.process_peak_count, f.function, f.file, f.line, m.path AS module, f.module_offset, h.estimated
FROM site_total t JOIN heap h ON h.id = t.heap_id LEFT JOIN stack s ON s.id = t.stack_id LEFT JOIN frame f ON f.id = s.site_frame_id
LEFT JOIN module m ON m.id = f.module_id;

-- What was live at the peak of each heap, by stack: adds up to peak. process_peak_*: of these stacks, at the peak of the process (all stacks: site).
CREATE VIEW peak_site AS
SELECT process_id, heap, stack_id, peak_bytes AS live_bytes, peak_count AS live_count, process_peak_bytes, process_peak_count, function, file, line,
       module, module_offset, estimated
FROM site WHERE peak_count > 0 OR peak_bytes > 0;

-- What was live when the process began to leave: what leaks are judged by.
CREATE VIEW live_at_exit AS
SELECT process_id, heap, stack_id, live_at_exit_bytes AS live_bytes, live_at_exit_count AS live_count, function, file, line, module, module_offset, estimated
FROM site WHERE live_at_exit_count > 0 OR live_at_exit_bytes > 0;

-- What was live after the last event of the process.
CREATE VIEW live_at_end AS
SELECT process_id, heap, stack_id, live_bytes, live_count, function, file, line, module, module_offset, estimated
FROM site WHERE live_count > 0 OR live_bytes > 0;

-- Blocks freed by the same thread before its next allocation (a realloc gives its old block back before it allocates).
CREATE VIEW temporary AS
SELECT process_id, heap, stack_id, temporary AS count, temporary_bytes AS bytes, function, file, line, module, module_offset, allocations, estimated
FROM site WHERE temporary > 0;

-- What each function allocated over the whole run. self: it is the innermost frame. total: it is anywhere on the stack, a recursive one counts once.
-- function NULL: all frames without a name.
CREATE VIEW function_total AS
SELECT a.process_id, h.name AS heap, a.function, a.self_bytes, a.total_bytes, a.self_count, a.total_count, h.estimated
FROM function_aggregate a JOIN heap h ON h.id = a.heap_id;

-- Live bytes over time. A value holds until the next row of its process and heap.
CREATE VIEW memory_timeline AS
SELECT t.process_id, h.name AS heap, t.ts_ns, t.live_bytes, t.live_count, coalesce(h.estimated, p.estimated) AS estimated
FROM timeline t JOIN process p ON p.id = t.process_id LEFT JOIN heap h ON h.id = t.heap_id;

-- Resident memory that the trace does not explain. explained_bytes: live bytes over the root heaps, at most what is resident (memory that was never
-- touched explains nothing); live_bytes: all of them. gap_bytes = rss_bytes - explained_bytes - tool_bytes, never negative; where tool_bytes is NULL
-- (unknown) it includes tidemark's own resident pages.
CREATE VIEW memory_gap AS
SELECT process_id, ts_ns, rss_bytes, explained_bytes, tool_bytes, rss_bytes - coalesce(tool_bytes, 0) - explained_bytes AS gap_bytes, live_bytes
FROM (SELECT process_id, ts_ns, rss_bytes, min(tool_bytes, rss_bytes) AS tool_bytes, live_bytes,
             min(live_bytes, rss_bytes - min(coalesce(tool_bytes, 0), rss_bytes)) AS explained_bytes
      FROM gap);

-- Scopes, one row for each time that one was opened. parent_id: the scope around it. forward_scope_id: of an operator of the backward pass
-- (torch.backward), the forward operator that asked for it. end_kind: closed; exception (it was left by one); abandoned (a scope around it was closed
-- first, longjmp left its block, or its key was used again); thread (it was still open at the end of its thread); process (at the end of its
-- process). category: user, python, nvtx, nvtx:DOMAIN, itt, torch.op, torch.backward, torch.script, torch.user, ...; NULL: none was said.
CREATE VIEW scope AS
SELECT s.id, s.parent_id, s.process_id, s.thread_id, n.text AS name, c.text AS category, s.start_ns, s.end_ns,
       CASE s.end_kind WHEN 0 THEN 'closed' WHEN 1 THEN 'exception' WHEN 2 THEN 'abandoned' WHEN 3 THEN 'thread' WHEN 4 THEN 'process' END AS end_kind,
       s.depth, s.forward_scope_id
FROM scope_packed s JOIN scope_name n ON n.id = s.name_id LEFT JOIN scope_name c ON c.id = s.category_id;

-- Scopes by name and category. calls, counts and bytes are sums over instances; total_*, duration_ns and retained_bytes count only the outermost
-- instance of a name inside itself; peak_* is the maximum over instances. calls and duration_ns are of all instances, in each of its rows.
-- self: in the scope itself, total: with its descendants; freed counts in the scope that frees, own_freed_bytes frees of what the scope (or its
-- descendants) allocated, wherever and whenever. peak_bytes: most live bytes of the heap while it was open; peak_growth_bytes: that less what was live when
-- it opened (other threads included); peak_own_bytes: most live bytes of what it and its descendants allocated; retained_bytes: of these, live when
-- it closed. heap NULL: no instance touched a heap. [unscoped]: what happened outside of all scopes; the self_* of all rows of a heap add up to
-- the heap's totals.
CREATE VIEW scope_total AS
SELECT a.process_id, h.name AS heap, a.name, a.category, a.calls, a.duration_ns, a.self_allocated_bytes, a.total_allocated_bytes, a.self_freed_bytes,
       a.total_freed_bytes, a.self_allocated_bytes - a.self_freed_bytes AS self_net_bytes, a.total_allocated_bytes - a.total_freed_bytes AS total_net_bytes,
       a.self_allocations, a.total_allocations, a.self_frees, a.total_frees, a.own_freed_bytes, a.retained_bytes, a.peak_bytes, a.peak_growth_bytes,
       a.peak_own_bytes, coalesce(h.estimated, 0) AS estimated
FROM scope_aggregate a LEFT JOIN heap h ON h.id = a.heap_id;

-- The same for each instance of a scope and each heap that it or a scope inside it touched; heap NULL: none. [unscoped] has no instance.
CREATE VIEW scope_instance AS
SELECT s.id AS scope_id, s.process_id, s.thread_id, h.name AS heap, n.text AS name, c.text AS category, s.start_ns, s.end_ns,
       s.end_ns - s.start_ns AS duration_ns, coalesce(a.self_allocated_bytes, 0) AS self_allocated_bytes,
       coalesce(a.total_allocated_bytes, 0) AS total_allocated_bytes, coalesce(a.self_freed_bytes, 0) AS self_freed_bytes,
       coalesce(a.total_freed_bytes, 0) AS total_freed_bytes, coalesce(a.self_allocated_bytes - a.self_freed_bytes, 0) AS self_net_bytes,
       coalesce(a.total_allocated_bytes - a.total_freed_bytes, 0) AS total_net_bytes, coalesce(a.self_allocations, 0) AS self_allocations,
       coalesce(a.total_allocations, 0) AS total_allocations, coalesce(a.self_frees, 0) AS self_frees, coalesce(a.total_frees, 0) AS total_frees,
       coalesce(a.own_freed_bytes, 0) AS own_freed_bytes, coalesce(a.retained_bytes, 0) AS retained_bytes, a.peak_bytes, a.peak_growth_bytes,
       a.peak_own_bytes, coalesce(h.estimated, 0) AS estimated
FROM scope_packed s JOIN scope_name n ON n.id = s.name_id LEFT JOIN scope_name c ON c.id = s.category_id
LEFT JOIN scope_instance_aggregate a ON a.scope_id = s.id LEFT JOIN heap h ON h.id = a.heap_id
WHERE s.id > 0;

-- What a function or a phase costs on average: means over the calls that are not inside another one of the same name (time, allocated bytes), and
-- over the calls that touched the heap (growth). net_bytes: allocated less freed in all of them.
CREATE VIEW scope_summary AS
SELECT a.process_id, h.name AS heap, a.name, a.category, a.calls, a.duration_ns AS total_duration_ns,
       a.duration_ns / a.outermost_calls AS mean_duration_ns, a.total_allocated_bytes / a.outermost_calls AS mean_allocated_bytes,
       a.growth_sum_bytes / nullif(a.instances, 0) AS mean_peak_growth_bytes, a.peak_growth_bytes, a.peak_bytes,
       a.total_allocated_bytes - a.total_freed_bytes AS net_bytes, a.retained_bytes, coalesce(h.estimated, 0) AS estimated
FROM scope_aggregate a LEFT JOIN heap h ON h.id = a.heap_id
WHERE a.calls > 0;

-- Four looks at a heap around a scope: at the baseline, before it, at its peak, after it. live_bytes and allocated_bytes (what the heap had handed out;
-- pool_state's figure where there is one) are exact; reserved, active and inactive are the latest that its allocator had said, rss_bytes the latest
-- reading: NULL before the first. created, deleted: blocks since the phase before, by all threads. tables.sql says which instances are kept.
CREATE VIEW scope_snapshot AS
SELECT p.scope_id, p.heap_id, CASE p.phase WHEN 0 THEN 'baseline' WHEN 1 THEN 'before' WHEN 2 THEN 'peak' ELSE 'after' END AS phase, p.ts_ns,
       p.live_bytes, coalesce((SELECT q.allocated_bytes FROM pool_state q WHERE q.heap_id = p.heap_id AND q.ts_ns <= p.ts_ns
                               ORDER BY q.ts_ns DESC LIMIT 1), p.live_bytes) AS allocated_bytes,
       (SELECT q.reserved_bytes FROM pool_state q WHERE q.heap_id = p.heap_id AND q.ts_ns <= p.ts_ns ORDER BY q.ts_ns DESC LIMIT 1) AS reserved_bytes,
       (SELECT q.active_bytes FROM pool_state q WHERE q.heap_id = p.heap_id AND q.ts_ns <= p.ts_ns ORDER BY q.ts_ns DESC LIMIT 1) AS active_bytes,
       (SELECT q.inactive_bytes FROM pool_state q WHERE q.heap_id = p.heap_id AND q.ts_ns <= p.ts_ns ORDER BY q.ts_ns DESC LIMIT 1) AS inactive_bytes,
       (SELECT m.value FROM sample m JOIN heap h ON h.id = p.heap_id
        WHERE m.process_id = h.process_id AND m.name = 'rss' AND m.ts_ns <= p.ts_ns ORDER BY m.ts_ns DESC LIMIT 1) AS rss_bytes,
       p.created, p.deleted, p.live_count
FROM scope_snapshot_packed p;

-- Steps side by side. heap NULL: the process over its root heaps. survived: allocated in the step and still live at its end. rss_begin_bytes,
-- rss_end_bytes: the first reading at or after its begin and its end.
CREATE VIEW step_total AS
SELECT s.id AS step_id, s.process_id, s.n, s.start_ns, s.end_ns, s.end_ns - s.start_ns AS duration_ns, h.name AS heap, a.allocated_bytes, a.freed_bytes,
       a.allocated_bytes - a.freed_bytes AS net_bytes, a.allocations, a.frees, a.begin_bytes AS live_begin_bytes, a.end_bytes AS live_end_bytes,
       a.peak_bytes, a.peak_bytes - a.begin_bytes AS peak_growth_bytes, a.survived_bytes, a.survived_count,
       (SELECT m.value FROM sample m WHERE m.process_id = s.process_id AND m.name = 'rss' AND m.ts_ns >= s.start_ns ORDER BY m.ts_ns LIMIT 1)
       AS rss_begin_bytes,
       (SELECT m.value FROM sample m WHERE m.process_id = s.process_id AND m.name = 'rss' AND m.ts_ns >= s.end_ns ORDER BY m.ts_ns LIMIT 1)
       AS rss_end_bytes, coalesce(h.estimated, p.estimated) AS estimated
FROM step s JOIN step_aggregate a ON a.step_id = s.id JOIN process p ON p.id = s.process_id LEFT JOIN heap h ON h.id = a.heap_id;

-- Call sites with blocks that were live at exit, scored by how much they look like leaks: 0.5 and more are likely ones, reason says why. A row stands
-- for `stacks` stacks of the same call site, called from the same line of the program; stack_id is the one of most live bytes, the other
-- figures are sums. suppressed 1: a known allocation of a runtime, made once by design, or a suppression of the program's own.
CREATE VIEW leak_candidate AS
SELECT l.process_id, h.name AS heap, l.stack_id, l.live_bytes, l.live_count, l.allocations, l.growth_bytes_per_step, l.first_ns, l.last_ns, l.score,
       l.reason, l.suppressed, f.function, f.file, f.line, m.path AS module, f.module_offset, l.stacks, l.growth_p, h.estimated
FROM leak_score l JOIN heap h ON h.id = l.heap_id LEFT JOIN stack s ON s.id = l.stack_id LEFT JOIN frame f ON f.id = s.site_frame_id
LEFT JOIN module m ON m.id = f.module_id;
