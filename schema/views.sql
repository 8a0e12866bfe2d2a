-- views.sql - the stable surface of a tidemark database: what reports show and what people query.
--
-- Flow:   tables.sql, filled by import -> here -> every command of tidemark, and any SQLite tool.
-- Cost:   every view but `allocation` reads aggregates that import filled; none scans allocations.
-- Common: `heap` is heap.name; in peak, heap_summary and memory_timeline heap NULL is the whole process over its root heaps.
--         `function`, `file`, `line` beside a stack_id are those of its site: the innermost Python frame, else the innermost frame that is no
--         allocator's wrapper. `module` is the path of the site's module. `estimated` is 1 where numbers come from sampling.
-- Times in ns since the start of the earliest trace, sizes in bytes as requested, NULL is unknown.

-- Indexes first (but that of scopes: tables.sql), which import makes when every row is there. allocation_packed has none on purpose: each would cost more
-- than the rest of the import.
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
CREATE INDEX gpu_block_by_heap ON gpu_block(heap_id, alloc_ns);
CREATE INDEX gpu_activity_by_process ON gpu_activity(process_id, start_ns);

-- One row for each block. free_ns NULL: never freed. usable_bytes: what the allocator really gave, NULL unknown. realloc_of_id: the block that realloc
-- or mremap turned into this one; for parts of a split mapping, the part that was given back first. weight: blocks it stands for, 1.0 unless sampled.
-- scope_id, free_scope_id: the innermost scope that was open on the thread that allocated, and on the one that freed; 0: [unscoped].
CREATE VIEW allocation AS
SELECT a.id, o.process_id, o.heap_id, o.thread_id, a.address, a.size_bytes, a.size_bytes + a.slack_bytes AS usable_bytes, o.api, a.alloc_ns,
       a.stack_id, coalesce(a.scope_id, 0) AS scope_id, a.alloc_ns + a.lifetime_ns AS free_ns,
       CASE WHEN a.free_thread <= 0 THEN o.thread_id ELSE a.free_thread END AS free_thread_id,
       CASE WHEN a.free_thread IS NOT NULL THEN coalesce(a.free_scope_id, 0) END AS free_scope_id, a.realloc_of_id, coalesce(a.weight, 1.0) AS weight
FROM allocation_packed a JOIN allocation_origin o ON o.id = a.origin_id;

-- One row for each frame, as text: its function, else module+offset, else the address, else ?. A semicolon in a name becomes a colon: it separates frames.
CREATE VIEW frame_text AS
SELECT f.id AS frame_id,
       coalesce(replace(f.function, ';', ':'),
                replace(replace(m.path, rtrim(m.path, replace(m.path, '/', '')), ''), ';', ':')
                    || iif(f.module_offset IS NULL, '', printf('+0x%x', f.module_offset)),
                iif(f.module_offset IS NULL, '?', printf('0x%x', f.module_offset))) AS text
FROM frame f LEFT JOIN module m ON m.id = f.module_id;

-- A whole stack as text, outermost first: main;load;parse. Built for the rows that are read only: always say WHERE stack_id = ... or join.
-- A parent has a lower id, so that every walk outward ends; where a damaged database says otherwise the text begins with [damaged].
CREATE VIEW stack_text AS
SELECT s.id AS stack_id,
       coalesce((WITH RECURSIVE up(id, parent_id, frame_id, n) AS (
                         SELECT s.id, s.parent_id, s.frame_id, 0
                         UNION ALL SELECT p.id, p.parent_id, p.frame_id, up.n + 1 FROM up JOIN stack p ON p.id = up.parent_id AND p.id < up.id)
                 SELECT group_concat(text, ';')
                 FROM (SELECT iif(up.parent_id >= up.id, '[damaged];', '') || t.text AS text
                       FROM up JOIN frame_text t ON t.frame_id = up.frame_id ORDER BY up.n DESC)), '') AS text
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

-- What was live when a threshold was crossed (alert), by stack. An alert of no process has the rows of all that ran.
CREATE VIEW alert_site AS
SELECT n.process_id, a.ts_ns, a.rule, a.value, h.name AS heap, k.stack_id, k.live_bytes, k.live_count, f.function, f.file, f.line, m.path AS module,
       f.module_offset, h.is_root, h.estimated
FROM alert a JOIN snapshot n ON n.label = 'mark:alert: ' || a.rule AND n.ts_ns = a.ts_ns AND (a.process_id IS NULL OR n.process_id = a.process_id)
JOIN snapshot_stack k ON k.snapshot_id = n.id JOIN heap h ON h.id = n.heap_id LEFT JOIN stack s ON s.id = k.stack_id
LEFT JOIN frame f ON f.id = s.site_frame_id LEFT JOIN module m ON m.id = f.module_id;

-- What was live when the process began to leave: what leaks are judged by.
CREATE VIEW live_at_exit AS
SELECT process_id, heap, stack_id, live_at_exit_bytes AS live_bytes, live_at_exit_count AS live_count, function, file, line, module, module_offset, estimated
FROM site WHERE live_at_exit_count > 0 OR live_at_exit_bytes > 0;

-- What was live after the last event of the process.
CREATE VIEW live_at_end AS
SELECT process_id, heap, stack_id, live_bytes, live_count, function, file, line, module, module_offset, estimated
FROM site WHERE live_count > 0 OR live_bytes > 0;

-- Blocks freed by the same thread before its next allocation (a realloc gives its old block back before it allocates). Of a sample, before the next
-- allocation that was drawn: an estimate that is too high, the more so the fewer were drawn.
CREATE VIEW temporary AS
SELECT process_id, heap, stack_id, temporary AS count, temporary_bytes AS bytes, function, file, line, module, module_offset, allocations, estimated
FROM site WHERE temporary > 0;

-- What each function allocated over the whole run. self: it is the innermost frame. total: it is anywhere on the stack, a recursive one counts once.
-- function NULL: all frames without a name.
CREATE VIEW function_total AS
SELECT a.process_id, h.name AS heap, a.function, a.self_bytes, a.total_bytes, a.self_count, a.total_count, h.estimated
FROM function_aggregate a JOIN heap h ON h.id = a.heap_id;

-- Live bytes over time: of at most about 2,000 buckets a process and heap the lowest, the highest and the last value, at their true times. Where a bucket
-- had more values than these, a value need not hold until the next row of its process and heap.
CREATE VIEW memory_timeline AS
SELECT t.process_id, h.name AS heap, t.ts_ns, t.live_bytes, t.live_count, coalesce(h.estimated, p.estimated) AS estimated
FROM timeline t JOIN process p ON p.id = t.process_id LEFT JOIN heap h ON h.id = t.heap_id;

-- Resident memory that the trace does not explain. explained_bytes: live bytes over the root heaps, at most what is resident (memory that was never
-- touched explains nothing) and no page of a mapped file; live_bytes: all of them. gap_bytes = rss_bytes - explained_bytes - tool_bytes, never negative;
-- where tool_bytes is NULL (unknown) it includes tidemark's own resident pages. How much is files' is known where the recorder looked at the mappings:
-- between two looks it is taken for the smaller of both, before the first one for nothing.
CREATE VIEW memory_gap AS
WITH reading AS (
	SELECT process_id, ts_ns, rss_bytes, min(tool_bytes, rss_bytes) AS tool_bytes, live_bytes,
	       (SELECT s.value FROM sample s WHERE s.process_id = g.process_id AND s.name = 'rss_files' AND s.ts_ns <= g.ts_ns
	        ORDER BY s.ts_ns DESC LIMIT 1) AS file_before,
	       (SELECT s.value FROM sample s WHERE s.process_id = g.process_id AND s.name = 'rss_files' AND s.ts_ns >= g.ts_ns
	        ORDER BY s.ts_ns LIMIT 1) AS file_after
	FROM gap g),
one AS (
	SELECT *, min(live_bytes, max(rss_bytes - coalesce(tool_bytes, 0) - coalesce(min(file_before, coalesce(file_after, file_before)), 0), 0)) AS explained_bytes
	FROM reading)
SELECT o.process_id, o.ts_ns, o.rss_bytes, o.explained_bytes, o.tool_bytes, o.rss_bytes - coalesce(o.tool_bytes, 0) - o.explained_bytes AS gap_bytes,
       o.live_bytes, p.estimated
FROM one o JOIN process p ON p.id = o.process_id;

-- Scopes, one row for each time that one was opened. parent_id: the scope around it, the innermost one of its thread that was open from
-- its opening to its end; one that closed first (ranges end in any order) is not around it, and neither counts in its depth.
-- forward_scope_id: of an operator of the backward pass (torch.backward), the forward operator that asked for it. end_kind: closed;
-- exception (it was left by one); abandoned (a scope around it was closed first, longjmp left its block, or its key was used again);
-- thread (it was still open at the end of its thread); process (at the end of its process). category: user, python, nvtx, nvtx:DOMAIN,
-- itt, torch.op, torch.backward, torch.script, torch.user, ...; NULL: none was said.
CREATE VIEW scope AS
SELECT s.id, s.parent_id, s.process_id, s.thread_id, n.text AS name, c.text AS category, s.start_ns, s.end_ns,
       CASE s.end_kind WHEN 0 THEN 'closed' WHEN 1 THEN 'exception' WHEN 2 THEN 'abandoned' WHEN 3 THEN 'thread' WHEN 4 THEN 'process' END AS end_kind,
       s.depth, s.forward_scope_id
FROM scope_packed s JOIN scope_name n ON n.id = s.name_id LEFT JOIN scope_name c ON c.id = s.category_id;

-- Scopes by name and category. calls and self_* are sums over instances, peak_* the maximum over instances. total_*, own_freed_bytes,
-- retained_bytes and duration_ns count once what was done while at least one of the name was open on the thread, be they inside each other
-- or overlapping: they are sums over the instances that lie in no other one of the name, less what two of these that overlap have in
-- common (table scope_overlap). calls and duration_ns are of all instances, in each of its rows.
-- self: in the scope itself, while it was the innermost open one of its thread; total: what its thread did from its opening to its end, in
-- it and in the scopes that were opened inside it. Where one of these stays open longer, what it does from then on counts for those that
-- are still open. freed counts in the scope that frees; own_freed_bytes counts frees of what was allocated in the scope (or in those
-- inside it), wherever and whenever. peak_bytes: most live bytes of the heap while it was open; peak_growth_bytes: that less what was live
-- when it opened (other threads included); peak_own_bytes: most live bytes of what was allocated in it and those inside it;
-- retained_bytes: of these, live when it closed; what two that overlap have allocated counts in their name with the one that closes last.
-- heap NULL: no instance touched a heap. [unscoped]: what happened outside of all scopes; the self_* of all rows of a heap add up to the
-- heap's totals.
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

-- What a function or a phase costs on average: means over the calls that are not inside another one of the same name (time, allocated
-- bytes), and over the calls that touched the heap (growth). The time is how long a call takes; bytes that calls which overlap have in
-- common count once. net_bytes: allocated less freed in all of them.
CREATE VIEW scope_summary AS
SELECT a.process_id, h.name AS heap, a.name, a.category, a.calls, a.duration_ns AS total_duration_ns,
       a.calls_ns / a.outermost_calls AS mean_duration_ns, a.total_allocated_bytes / a.outermost_calls AS mean_allocated_bytes,
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

-- Call sites with blocks that were live at exit, scored by how much they look like leaks: 0.5 and more are likely ones, NULL tells nothing, reason says why. A row stands
-- for `stacks` stacks of the same call site, called from the same line of the program, or by the same caller where only some callers' blocks look like a
-- leak (table leak_stack says which stacks); stack_id is the one of most live bytes, the other figures are sums. suppressed 1: a known allocation of a runtime, made once by design, or a suppression of the program's own.
CREATE VIEW leak_candidate AS
SELECT l.process_id, h.name AS heap, l.stack_id, l.live_bytes, l.live_count, l.allocations, l.growth_bytes_per_step, l.first_ns, l.last_ns, l.score,
       l.reason, l.suppressed, f.function, f.file, f.line, m.path AS module, f.module_offset, l.stacks, l.growth_p, h.estimated
FROM leak_score l JOIN heap h ON h.id = l.heap_id LEFT JOIN stack s ON s.id = l.stack_id LEFT JOIN frame f ON f.id = s.site_frame_id
LEFT JOIN module m ON m.id = f.module_id;

-- Peaks of what is neither a heap nor a process; tables.sql says at level_total what belongs to each. What one was made of: `tidemark snapshot --at` its
-- ts_ns, --by thread, heap or site.
CREATE VIEW thread_peak AS
SELECT t.process_id, l.number AS thread_id, t.tid, t.name, l.peak_ns AS ts_ns, l.peak_bytes AS live_bytes, l.peak_count AS live_count, l.allocations,
       l.allocated_bytes, l.live_at_end_bytes, p.estimated
FROM level_total l JOIN thread t ON t.id = l.number JOIN process p ON p.id = t.process_id WHERE l.kind = 'thread';

CREATE VIEW rank_peak AS
SELECT trace_id, number AS rank, nullif(identity, '') AS world, peak_ns AS ts_ns, peak_bytes AS live_bytes, peak_count AS live_count, allocations, allocated_bytes, live_at_end_bytes
FROM level_total WHERE kind = 'rank';

CREATE VIEW device_peak AS
SELECT trace_id, number AS device, nullif(identity, '') AS uuid, peak_ns AS ts_ns, peak_bytes AS live_bytes, peak_count AS live_count, allocations, allocated_bytes, live_at_end_bytes
FROM level_total WHERE kind = 'device';

-- Of each scope instance and heap; ts_ns is known of those that scope_snapshot keeps.
CREATE VIEW scope_peak AS
SELECT i.scope_id, i.process_id, i.thread_id, i.heap, i.name, i.category, p.ts_ns, i.peak_bytes AS live_bytes, i.peak_growth_bytes, i.peak_own_bytes,
       i.start_ns, i.end_ns, i.estimated
FROM scope_instance i LEFT JOIN heap h ON h.process_id = i.process_id AND h.name = i.heap
LEFT JOIN scope_snapshot_packed p ON p.scope_id = i.scope_id AND p.heap_id = h.id AND p.phase = 2
WHERE i.peak_bytes IS NOT NULL;

-- How sharp each peak is. second_*: the highest level that is a peak of its own: between it and the peak the level fell at least a tenth of the peak
-- below it; NULL: there is none. near_peak_duration_ns: about how long the level was above nine tenths of the peak, for a
-- bucket of memory_timeline, which both are read from, has three of its levels: it may be off by the whole of each one in which the level came near, or left. Of a
-- peak in the same bucket (a two-thousandth of the run) as the highest one, or as a higher one of its own, nothing is known here.
CREATE VIEW peak_shape AS
WITH level AS (
	SELECT l.process_id, l.heap_id, l.ts_ns, l.live_bytes, t.peak_ns, t.peak_bytes,
	       lead(l.ts_ns) OVER (PARTITION BY l.process_id, l.heap_id ORDER BY l.ts_ns, l.rowid) AS next_ns,
	       min(l.live_bytes) OVER (PARTITION BY l.process_id, l.heap_id, l.ts_ns > t.peak_ns ORDER BY abs(l.ts_ns - t.peak_ns), l.rowid) AS valley_bytes
	FROM timeline l JOIN heap_total t ON t.process_id = l.process_id AND t.heap_id = l.heap_id),
other AS (
	SELECT process_id, heap_id, ts_ns, max(live_bytes) AS live_bytes FROM level
	WHERE ts_ns <> peak_ns AND 10 * (live_bytes - valley_bytes) >= peak_bytes AND peak_bytes > 0 GROUP BY process_id, heap_id),
near AS (
	SELECT process_id, heap_id, sum(next_ns - ts_ns) AS near_ns FROM level
	WHERE 10 * live_bytes >= 9 * peak_bytes AND peak_bytes > 0 GROUP BY process_id, heap_id)
SELECT t.process_id, h.name AS heap, t.peak_ns AS ts_ns, t.peak_bytes AS live_bytes, o.ts_ns AS second_ns, o.live_bytes AS second_bytes,
       round(1.0 * o.live_bytes / t.peak_bytes, 4) AS second_share, coalesce(n.near_ns, 0) AS near_peak_duration_ns,
       coalesce(h.estimated, p.estimated) AS estimated
FROM heap_total t JOIN process p ON p.id = t.process_id LEFT JOIN heap h ON h.id = t.heap_id
LEFT JOIN other o ON o.process_id = t.process_id AND o.heap_id = t.heap_id LEFT JOIN near n ON n.process_id = t.process_id AND n.heap_id = t.heap_id;

-- What would bring the peak of a process down: the stacks that held most of it, how long their blocks live (over the whole run), and what that means.
CREATE VIEW peak_lever AS
SELECT t.process_id, h.name AS heap, t.stack_id, t.process_peak_bytes AS live_bytes, t.process_peak_count AS live_count,
       round(1.0 * t.process_peak_bytes / a.peak_bytes, 4) AS peak_share, t.mean_lifetime_ns AS mean_life_duration_ns, t.live_at_exit_bytes,
       CASE WHEN t.frees = 0 THEN 'was never freed: make less of it, or free it'
            WHEN 10 * t.live_at_exit_bytes >= 9 * t.process_peak_bytes THEN 'stays to the end: make less of it, or free it'
            WHEN 100 * t.mean_lifetime_ns < p.end_ns - p.start_ns THEN 'short-lived: fewer at the same time'
            ELSE 'lives on for a while: free it before the peak' END AS reason,
       f.function, f.file, f.line, m.path AS module, f.module_offset, h.estimated
FROM site_total t JOIN heap h ON h.id = t.heap_id JOIN process p ON p.id = t.process_id
JOIN heap_total a ON a.process_id = t.process_id AND a.heap_id = 0 LEFT JOIN stack s ON s.id = t.stack_id LEFT JOIN frame f ON f.id = s.site_frame_id
LEFT JOIN module m ON m.id = f.module_id
WHERE t.process_peak_bytes > 0;

-- Call stacks whose blocks live under a millisecond, or are of the same size as the one before again and again (NULL where only samples are known).
CREATE VIEW churn AS
SELECT t.process_id, h.name AS heap, t.stack_id, t.allocations, t.short_lived AS short_lived_count, t.short_lived_bytes, iif(h.estimated, NULL, t.same_size) AS same_size_count,
       t.mean_lifetime_ns AS mean_life_duration_ns, f.function, f.file, f.line, m.path AS module, f.module_offset, h.estimated
FROM site_total t JOIN heap h ON h.id = t.heap_id LEFT JOIN stack s ON s.id = t.stack_id LEFT JOIN frame f ON f.id = s.site_frame_id
LEFT JOIN module m ON m.id = f.module_id
WHERE t.short_lived > 0 OR (t.same_size > 0 AND NOT h.estimated);

-- Call stacks that reallocate. longest_chain_count: most reallocations in a row of one block that ended here; NULL where only samples are known.
CREATE VIEW realloc_site AS
SELECT t.process_id, h.name AS heap, t.stack_id, t.reallocations AS realloc_count, t.reallocated_bytes, iif(h.estimated, NULL, t.longest_chain) AS longest_chain_count,
       t.allocations, f.function, f.file, f.line, m.path AS module, f.module_offset, h.estimated
FROM site_total t JOIN heap h ON h.id = t.heap_id LEFT JOIN stack s ON s.id = t.stack_id LEFT JOIN frame f ON f.id = s.site_frame_id
LEFT JOIN module m ON m.id = f.module_id
WHERE t.reallocations > 0;

-- What the allocator gave beyond what was asked for. slack_share: of the bytes asked for.
CREATE VIEW oversized_site AS
SELECT t.process_id, h.name AS heap, t.stack_id, t.slack_bytes, t.allocated_bytes, round(1.0 * t.slack_bytes / t.allocated_bytes, 4) AS slack_share,
       t.allocations, f.function, f.file, f.line, m.path AS module, f.module_offset, h.estimated
FROM site_total t JOIN heap h ON h.id = t.heap_id LEFT JOIN stack s ON s.id = t.stack_id LEFT JOIN frame f ON f.id = s.site_frame_id
LEFT JOIN module m ON m.id = f.module_id
WHERE t.slack_bytes > 0;

-- How many blocks of which size, and how long those that were freed had lived; in powers of two.
CREATE VIEW size_histogram AS
SELECT b.process_id, h.name AS heap, b.from_bytes, b.to_bytes, b.allocations, b.allocated_bytes, h.estimated
FROM size_bucket b JOIN heap h ON h.id = b.heap_id;

CREATE VIEW lifetime_histogram AS
SELECT b.process_id, h.name AS heap, b.from_ns AS from_duration_ns, b.to_ns AS to_duration_ns, b.frees, b.freed_bytes, h.estimated
FROM lifetime_bucket b JOIN heap h ON h.id = b.heap_id;

-- What lies between resident memory and live bytes, where the recorder looked at the process' mappings. Parts of gap_bytes, none larger than what
-- is left of it: file_bytes (resident pages of mapped files: code, data, libraries), stack_bytes (of threads), shared_bytes (shared memory),
-- retained_bytes (anonymous memory beyond what is live: what allocators keep, and their rounding), unknown_bytes. arena_bytes: of the anonymous
-- memory, glibc's arenas of threads (live blocks included). pss_bytes, cgroup_bytes: the latest readings; NULL: none. What a fork's child inherited is
-- not live in it, and counts as retained_bytes; anonymous memory that is mapped as shared is live and counts as shared_bytes, and retained_bytes is too
-- small by that: the kernel's figures do not tell it from shared memory that is not recorded.
CREATE VIEW memory_gap_part AS
WITH look AS MATERIALIZED (
	SELECT f.trace_id, g.process_id, g.ts_ns, g.rss_bytes, g.live_bytes, g.tool_bytes, g.gap_bytes, g.estimated, f.value AS file, s.value AS stack, c.value AS shared,
	       a.value + b.value + d.value AS anonymous, b.value AS arena
	FROM sample f JOIN memory_gap g ON g.process_id = f.process_id AND g.ts_ns = f.ts_ns
	JOIN sample s ON s.process_id = f.process_id AND s.name = 'rss_stacks' AND s.ts_ns = f.ts_ns
	JOIN sample c ON c.process_id = f.process_id AND c.name = 'rss_shared' AND c.ts_ns = f.ts_ns
	JOIN sample a ON a.process_id = f.process_id AND a.name = 'rss_anonymous' AND a.ts_ns = f.ts_ns
	JOIN sample b ON b.process_id = f.process_id AND b.name = 'rss_arenas' AND b.ts_ns = f.ts_ns
	JOIN sample d ON d.process_id = f.process_id AND d.name = 'rss_heap' AND d.ts_ns = f.ts_ns
	WHERE f.name = 'rss_files'),
one AS (SELECT *, min(file, gap_bytes) AS file_bytes FROM look),
two AS (SELECT *, min(stack, gap_bytes - file_bytes) AS stack_bytes FROM one),
three AS (SELECT *, min(shared, gap_bytes - file_bytes - stack_bytes) AS shared_bytes FROM two),
four AS (SELECT *, min(max(anonymous - live_bytes, 0), gap_bytes - file_bytes - stack_bytes - shared_bytes) AS retained_bytes FROM three)
SELECT process_id, ts_ns, rss_bytes,
       (SELECT value FROM sample m WHERE m.process_id = four.process_id AND m.name = 'pss' AND m.ts_ns <= four.ts_ns ORDER BY m.ts_ns DESC LIMIT 1) AS pss_bytes,
       (SELECT value FROM sample m WHERE m.process_id IS NULL AND m.name = 'cgroup' AND m.ts_ns <= four.ts_ns AND m.trace_id = four.trace_id
        ORDER BY m.ts_ns DESC LIMIT 1) AS cgroup_bytes,
       live_bytes, tool_bytes, gap_bytes, file_bytes, stack_bytes, shared_bytes, retained_bytes,
       gap_bytes - file_bytes - stack_bytes - shared_bytes - retained_bytes AS unknown_bytes, arena AS arena_bytes, estimated
FROM four;

-- Of each process the twenty moments at which the gap changed most from one reading to the next (of all together 320, the largest of each process first),
-- and what the program did between the two: its step, the scope that was opened last of those that were open, and the stack that allocated most bytes in
-- root heaps.
CREATE VIEW memory_gap_jump AS
WITH change AS (
	SELECT process_id, lag(ts_ns) OVER w AS from_ns, ts_ns, gap_bytes - lag(gap_bytes) OVER w AS change_bytes, gap_bytes, rss_bytes, live_bytes,
	       estimated
	FROM memory_gap WINDOW w AS (PARTITION BY process_id ORDER BY ts_ns)),
largest AS (
	SELECT *, row_number() OVER (PARTITION BY process_id ORDER BY abs(change_bytes) DESC, ts_ns) AS place FROM change WHERE change_bytes <> 0),
jump AS MATERIALIZED (
	SELECT j.*, p.trace_id FROM largest j JOIN process p ON p.id = j.process_id WHERE j.place <= 20
	ORDER BY j.place, abs(j.change_bytes) DESC, j.ts_ns LIMIT 320),
span AS MATERIALIZED (
	SELECT j.*, (SELECT min(c.id) FROM checkpoint c WHERE c.trace_id = j.trace_id AND c.ts_ns > j.from_ns) AS first_checkpoint,
	       (SELECT min(c.id) FROM checkpoint c WHERE c.trace_id = j.trace_id AND c.ts_ns > j.ts_ns) AS last_checkpoint
	FROM jump j),
row AS (
	SELECT s.process_id, s.ts_ns, a.stack_id, a.size_bytes * coalesce(a.weight, 1.0) AS bytes, a.origin_id FROM span s
	CROSS JOIN allocation_packed a ON a.id > (SELECT b.allocation_id FROM checkpoint b WHERE b.id = s.first_checkpoint - 1)
	    AND a.id <= (SELECT b.allocation_id FROM checkpoint b WHERE b.id = s.last_checkpoint)
	WHERE a.alloc_ns > s.from_ns AND a.alloc_ns <= s.ts_ns
	UNION ALL
	SELECT s.process_id, s.ts_ns, a.stack_id, a.size_bytes * coalesce(a.weight, 1.0) AS bytes, a.origin_id FROM span s
	CROSS JOIN checkpoint e ON e.id BETWEEN s.first_checkpoint AND s.last_checkpoint
	CROSS JOIN checkpoint_live r ON r.checkpoint_id = e.id
	    AND r.first_id > (SELECT b.allocation_id FROM checkpoint b WHERE b.id = s.last_checkpoint)
	CROSS JOIN allocation_packed a ON a.id BETWEEN r.first_id AND r.first_id + r.more
	WHERE a.alloc_ns > s.from_ns AND a.alloc_ns <= s.ts_ns AND a.alloc_ns < e.ts_ns AND a.alloc_ns >= (SELECT d.ts_ns FROM checkpoint d WHERE d.id = e.id - 1)),
made AS (
	SELECT r.process_id, r.ts_ns, r.stack_id, CAST(round(sum(r.bytes)) AS INTEGER) AS bytes FROM row r JOIN allocation_origin o ON o.id = r.origin_id
	JOIN heap h ON h.id = o.heap_id WHERE o.process_id = r.process_id AND h.is_root GROUP BY r.process_id, r.ts_ns, r.stack_id),
most AS MATERIALIZED (SELECT process_id, ts_ns, stack_id, max(bytes) AS bytes FROM made GROUP BY process_id, ts_ns)
SELECT j.process_id, j.from_ns, j.ts_ns, j.change_bytes, j.gap_bytes, j.rss_bytes, j.live_bytes,
       (SELECT s.n FROM step s WHERE s.process_id = j.process_id AND s.start_ns <= j.ts_ns AND (s.end_ns IS NULL OR s.end_ns > j.from_ns)
        ORDER BY s.start_ns DESC LIMIT 1) AS step_id,
       (SELECT n.text FROM scope_packed s JOIN scope_name n ON n.id = s.name_id WHERE s.process_id = j.process_id AND s.start_ns <= j.ts_ns
        AND s.end_ns > j.from_ns ORDER BY s.start_ns DESC, s.id DESC LIMIT 1) AS scope_name,
       m.stack_id, m.bytes AS allocated_bytes, f.function, f.file, f.line, j.estimated
FROM jump j LEFT JOIN most m ON m.process_id = j.process_id AND m.ts_ns = j.ts_ns LEFT JOIN stack s ON s.id = m.stack_id
LEFT JOIN frame f ON f.id = s.site_frame_id;

-- What ran on devices (kernel, memcpy, memset) and what the host waited for (call: one of the driver's memory functions; overhead: what driver and profiling
-- interface took for themselves), added up. total_duration_ns is a sum: what ran at the same time counts as often.
CREATE VIEW gpu_work AS
SELECT process_id, device, kind, direction, name, count, duration_ns AS total_duration_ns, duration_ns / count AS mean_duration_ns, longest_duration_ns,
       size_bytes, first_ns, last_ns
FROM gpu_work_total;

-- What was live at the peak of each heap of a device, by the place in the program that took it: the innermost Python frame, where there is one.
CREATE VIEW gpu_peak_line AS
SELECT t.process_id, h.name AS heap, h.device, sum(t.peak_bytes) AS live_bytes, sum(t.peak_count) AS live_count, f.function, f.file, f.line,
       m.path AS module, f.module_offset, count(*) AS stacks, h.estimated
FROM gpu_site g JOIN site_total t ON t.process_id = g.process_id AND t.heap_id = g.heap_id AND t.stack_id = g.stack_id JOIN heap h ON h.id = t.heap_id
LEFT JOIN stack s ON s.id = t.stack_id LEFT JOIN frame f ON f.id = s.site_frame_id LEFT JOIN module m ON m.id = f.module_id
WHERE t.peak_count > 0 AND h.kind <> 'address-space'
GROUP BY t.process_id, t.heap_id, f.function, f.file, f.line, iif(f.function IS NULL, m.path, 0), iif(f.function IS NULL, f.module_offset, 0);

-- The same by the library that asked, as the stack shows; library NULL: none of those that are known (schema/gpu_libraries.h).
CREATE VIEW gpu_peak_library AS
SELECT t.process_id, h.name AS heap, h.device, g.library, sum(t.peak_bytes) AS live_bytes, sum(t.peak_count) AS live_count, count(*) AS stacks, h.estimated
FROM gpu_site g JOIN site_total t ON t.process_id = g.process_id AND t.heap_id = g.heap_id AND t.stack_id = g.stack_id JOIN heap h ON h.id = t.heap_id
WHERE t.peak_count > 0 AND h.kind <> 'address-space'
GROUP BY t.process_id, t.heap_id, g.library;

-- What pools said of themselves. idle_bytes: reserved and not handed out. fragmentation: the share of what is reserved that is split off, free, and cannot be
-- given back.
CREATE VIEW pool AS
SELECT h.process_id, h.name AS heap, h.kind, h.device, q.ts_ns, q.allocated_bytes, q.reserved_bytes, q.active_bytes, q.inactive_bytes,
       q.reserved_bytes - q.allocated_bytes AS idle_bytes, round(1.0 * q.inactive_bytes / nullif(q.reserved_bytes, 0), 4) AS fragmentation
FROM pool_state q JOIN heap h ON h.id = q.heap_id;

-- The peaks of pools: n NULL over the whole run; 0 up to the first time that the program reset the peaks of the heap, 1 from there to the second one, ... Each
-- with its time. What held when a period began counts in it. allocated: exact at every block; the others as the pool's allocator told them, NULL where it never did.
CREATE VIEW pool_peak AS
WITH period(process_id, heap_id, n, start_ns, end_ns, live_bytes, live_ns) AS (
	SELECT h.process_id, h.id, NULL, p.start_ns, p.end_ns, t.peak_bytes, t.peak_ns
	FROM heap h JOIN process p ON p.id = h.process_id LEFT JOIN heap_total t ON t.process_id = h.process_id AND t.heap_id = h.id
	WHERE h.kind IN ('tensor', 'device-pool') OR EXISTS (SELECT 1 FROM pool_state q WHERE q.heap_id = h.id)
	UNION ALL
	SELECT r.process_id, r.heap_id, r.n, r.start_ns, r.end_ns, r.peak_bytes, r.peak_ns FROM peak_period r JOIN heap h ON h.id = r.heap_id
	WHERE h.kind IN ('tensor', 'device-pool') OR EXISTS (SELECT 1 FROM pool_state q WHERE q.heap_id = h.id)),
told AS (
	SELECT w.process_id, w.heap_id, w.n, w.start_ns, w.end_ns, w.live_bytes, w.live_ns, max(q.ts_ns, w.start_ns) AS ts_ns, q.allocated_bytes,
	       q.reserved_bytes, q.active_bytes, q.inactive_bytes
	FROM period w LEFT JOIN pool_state q ON q.heap_id = w.heap_id AND q.ts_ns <= w.end_ns
	AND q.ts_ns >= coalesce((SELECT max(b.ts_ns) FROM pool_state b WHERE b.heap_id = w.heap_id AND b.ts_ns <= w.start_ns), w.start_ns)),
ranked AS (
	SELECT *, row_number() OVER (PARTITION BY heap_id, n ORDER BY allocated_bytes DESC, ts_ns) AS by_allocated,
	       row_number() OVER (PARTITION BY heap_id, n ORDER BY reserved_bytes DESC, ts_ns) AS by_reserved,
	       row_number() OVER (PARTITION BY heap_id, n ORDER BY active_bytes DESC, ts_ns) AS by_active,
	       row_number() OVER (PARTITION BY heap_id, n ORDER BY inactive_bytes DESC, ts_ns) AS by_inactive,
	       row_number() OVER (PARTITION BY heap_id, n ORDER BY reserved_bytes - allocated_bytes DESC, ts_ns) AS by_idle,
	       row_number() OVER (PARTITION BY heap_id, n ORDER BY 1.0 * inactive_bytes / reserved_bytes DESC, ts_ns) AS by_fragmentation FROM told),
most AS (
	SELECT process_id, heap_id, n, start_ns, end_ns, live_bytes, live_ns, max(CASE by_allocated WHEN 1 THEN allocated_bytes END) AS allocated_bytes,
	       max(CASE by_allocated WHEN 1 THEN ts_ns END) AS allocated_ns, max(CASE by_reserved WHEN 1 THEN reserved_bytes END) AS reserved_bytes,
	       max(CASE WHEN by_reserved = 1 AND reserved_bytes IS NOT NULL THEN ts_ns END) AS reserved_ns,
	       max(CASE by_active WHEN 1 THEN active_bytes END) AS active_bytes,
	       max(CASE WHEN by_active = 1 AND active_bytes IS NOT NULL THEN ts_ns END) AS active_ns,
	       max(CASE by_inactive WHEN 1 THEN inactive_bytes END) AS inactive_bytes,
	       max(CASE WHEN by_inactive = 1 AND inactive_bytes IS NOT NULL THEN ts_ns END) AS inactive_ns,
	       max(CASE by_idle WHEN 1 THEN reserved_bytes - allocated_bytes END) AS idle_bytes,
	       max(CASE WHEN by_idle = 1 AND reserved_bytes - allocated_bytes IS NOT NULL THEN ts_ns END) AS idle_ns,
	       max(CASE by_fragmentation WHEN 1 THEN round(1.0 * inactive_bytes / nullif(reserved_bytes, 0), 4) END) AS fragmentation
	FROM ranked GROUP BY heap_id, n)
SELECT m.process_id, h.name AS heap, h.kind, h.device, m.n, m.start_ns, m.end_ns,
       CASE WHEN coalesce(m.allocated_bytes, -1) > coalesce(m.live_bytes, -1) THEN m.allocated_bytes ELSE m.live_bytes END AS allocated_bytes,
       CASE WHEN coalesce(m.allocated_bytes, -1) > coalesce(m.live_bytes, -1) THEN m.allocated_ns ELSE m.live_ns END AS allocated_ns,
       m.reserved_bytes, m.reserved_ns, m.active_bytes, m.active_ns, m.inactive_bytes, m.inactive_ns, m.idle_bytes, m.idle_ns, m.fragmentation
FROM most m JOIN heap h ON h.id = m.heap_id;

-- What a process occupies on a device, and what of it was recorded: live blocks, and what pools hold. gap_bytes = used_bytes - recorded_bytes: context,
-- modules, libraries that allocate past the driver's functions, tools. other_bytes: other processes on the device.
CREATE VIEW gpu_gap AS
SELECT process_id, device, ts_ns, used_bytes, recorded_bytes, used_bytes - recorded_bytes AS gap_bytes, all_bytes - used_bytes AS other_bytes, total_bytes
FROM (SELECT s.process_id, s.device, s.ts_ns, s.used_bytes,
             s.device_bytes
             + max(s.pool_bytes, coalesce((SELECT sum((SELECT q.reserved_bytes FROM pool_state q WHERE q.heap_id = h.id AND q.ts_ns <= s.ts_ns
                                                       AND q.reserved_bytes IS NOT NULL ORDER BY q.ts_ns DESC LIMIT 1))
                                           FROM heap h WHERE h.process_id = s.process_id AND h.device = s.device AND h.kind IN ('device-pool', 'device-graph')), 0))
             + max(s.tensor_bytes, coalesce((SELECT sum((SELECT q.reserved_bytes FROM pool_state q WHERE q.heap_id = h.id AND q.ts_ns <= s.ts_ns
                                                         AND q.reserved_bytes IS NOT NULL ORDER BY q.ts_ns DESC LIMIT 1))
                                             FROM heap h WHERE h.process_id = s.process_id AND h.device = s.device AND h.kind = 'tensor'
                                             AND h.parent_id IS NULL), 0)) AS recorded_bytes,
             (SELECT m.value FROM sample m WHERE m.process_id = s.process_id AND m.name = 'device_all:' || s.device AND m.ts_ns = s.ts_ns) AS all_bytes,
             (SELECT m.value FROM sample m WHERE m.process_id = s.process_id AND m.name = 'device_total:' || s.device AND m.ts_ns = s.ts_ns) AS total_bytes
      FROM gpu_gap_sample s);

-- Requests for memory that were refused, explained. live_bytes: blocks of the driver on that device that the process had then, and of the heap that refused where
-- it lies in none of these. allocated, reserved, active, inactive: of
-- the framework's allocator there (heap of kind tensor); allocated is exact, the others are what it said last. cached_bytes: reserved and not allocated, so held and
-- of no use to others. pool_idle_bytes: the same of the driver's pools and graphs, as they said last. largest_free_bytes: the longest piece of cached_bytes, known
-- where the driver's blocks were recorded. gap_bytes, other_bytes: as in gpu_gap, at the last sample before. why: the same in words.
CREATE VIEW gpu_oom AS
WITH unit(low, scale, form) AS (
	VALUES (0, 1.0, '%.0f bytes'), (1024, 1024.0, '%.1f KiB'), (1048576, 1048576.0, '%.1f MiB'), (10737418240, 1073741824.0, '%.1f GiB'),
	       (10995116277760, 1099511627776.0, '%.1f TiB'), (11258999068426240, 1125899906842624.0, '%.1f PiB'),
	       (1152921504606846976, 1152921504606846976.0, '%.1f EiB')),
said AS (
	SELECT o.*, h.name AS heap, h.device,
	       (SELECT t.id FROM heap t WHERE t.process_id = o.process_id AND t.device = h.device AND t.kind = 'tensor' ORDER BY t.id LIMIT 1) AS tensor_id,
	       (SELECT max(s.ts_ns) FROM gpu_gap_sample s WHERE s.process_id = o.process_id AND s.device = h.device AND s.ts_ns <= o.ts_ns) AS sample_ns
	FROM oom o LEFT JOIN heap h ON h.id = o.heap_id),
known AS (
	SELECT o.*, CASE WHEN o.explained THEN coalesce((SELECT sum(x.live_bytes) FROM oom_site x JOIN heap k ON k.id = x.heap_id
	                                                 WHERE x.oom_id = o.id AND (k.kind IN ('device', 'device-pool') OR k.id = o.heap_id AND NOT EXISTS (
	                                                       SELECT 1 FROM oom_site y JOIN heap p ON p.id = y.heap_id
	                                                       WHERE y.oom_id = o.id AND p.id = k.parent_id AND p.kind IN ('device', 'device-pool')))), 0) END
	       AS live_bytes,
	       CASE WHEN o.tensor_id IS NULL THEN NULL
	            WHEN o.explained THEN coalesce((SELECT sum(x.live_bytes) FROM oom_site x WHERE x.oom_id = o.id AND x.heap_id = o.tensor_id), 0)
	            ELSE (SELECT q.allocated_bytes FROM pool_state q WHERE q.heap_id = o.tensor_id AND q.ts_ns <= o.ts_ns ORDER BY q.ts_ns DESC LIMIT 1) END
	       AS allocated_bytes,
	       (SELECT q.reserved_bytes FROM pool_state q WHERE q.heap_id = o.tensor_id AND q.ts_ns <= o.ts_ns AND q.reserved_bytes IS NOT NULL
	        ORDER BY q.ts_ns DESC LIMIT 1) AS reserved_bytes,
	       (SELECT q.active_bytes FROM pool_state q WHERE q.heap_id = o.tensor_id AND q.ts_ns <= o.ts_ns AND q.active_bytes IS NOT NULL
	        ORDER BY q.ts_ns DESC LIMIT 1) AS active_bytes,
	       (SELECT q.inactive_bytes FROM pool_state q WHERE q.heap_id = o.tensor_id AND q.ts_ns <= o.ts_ns AND q.inactive_bytes IS NOT NULL
	        ORDER BY q.ts_ns DESC LIMIT 1) AS inactive_bytes,
	       (SELECT sum((SELECT q.reserved_bytes - q.allocated_bytes FROM pool_state q WHERE q.heap_id = t.id AND q.ts_ns <= o.ts_ns
	                    AND q.reserved_bytes IS NOT NULL AND q.allocated_bytes IS NOT NULL ORDER BY q.ts_ns DESC LIMIT 1))
	        FROM heap t WHERE t.process_id = o.process_id AND t.device = o.device AND t.kind IN ('device-pool', 'device-graph')) AS pool_idle_bytes,
	       g.gap_bytes, g.other_bytes
	FROM said o LEFT JOIN gpu_gap g ON g.process_id = o.process_id AND g.device = o.device AND g.ts_ns = o.sample_ns),
cached AS (SELECT *, CASE WHEN tensor_id IS NOT NULL THEN coalesce(reserved_bytes - allocated_bytes, segment_free_bytes) END AS cached_bytes FROM known)
SELECT o.id AS oom_id, o.process_id, o.ts_ns, o.heap, o.device, o.api, o.size_bytes, o.result, o.device_free_bytes, o.device_total_bytes, o.live_bytes,
       o.allocated_bytes, o.reserved_bytes, o.active_bytes, o.inactive_bytes, o.cached_bytes, o.largest_free_bytes, o.pool_idle_bytes, o.gap_bytes, o.other_bytes,
       n.text AS scope, o.stack_id, f.function, f.file, f.line, m.path AS module, f.module_offset,
       CASE WHEN o.size_bytes IS NULL THEN 'wanted memory for itself, how much is not told'
            ELSE 'asked for ' || (SELECT printf(form, o.size_bytes / scale) FROM unit WHERE low <= o.size_bytes ORDER BY low DESC LIMIT 1) END
       || coalesce(', ' || (SELECT printf(form, o.device_free_bytes / scale) FROM unit WHERE low <= o.device_free_bytes ORDER BY low DESC LIMIT 1)
                   || ' of the device''s ' || (SELECT printf(form, o.device_total_bytes / scale) FROM unit WHERE low <= o.device_total_bytes ORDER BY low DESC LIMIT 1) || ' were free', '')
       || CASE WHEN o.device_free_bytes >= o.size_bytes THEN ': in pieces that are too small, or not for this kind of memory' ELSE '' END
       || CASE WHEN o.live_bytes > 0 THEN '; this process held ' || (SELECT printf(form, o.live_bytes / scale) FROM unit WHERE low <= o.live_bytes ORDER BY low DESC LIMIT 1)
               || coalesce(' on cuda:' || o.device, ' in ' || o.heap) ELSE '' END
       || CASE WHEN o.cached_bytes > 0 THEN '; ' || (SELECT printf(form, o.cached_bytes / scale) FROM unit WHERE low <= o.cached_bytes ORDER BY low DESC LIMIT 1)
               || ' were cached by the framework and not in use'
               || coalesce(', in pieces of at most ' || (SELECT printf(form, o.largest_free_bytes / scale) FROM unit WHERE low <= o.largest_free_bytes ORDER BY low DESC LIMIT 1), '') ELSE '' END
       || CASE WHEN o.pool_idle_bytes > 0 THEN '; ' || (SELECT printf(form, o.pool_idle_bytes / scale) FROM unit WHERE low <= o.pool_idle_bytes ORDER BY low DESC LIMIT 1)
               || ' were kept by the driver''s pools and not in use' ELSE '' END
       || CASE WHEN o.gap_bytes > 0 THEN '; ' || (SELECT printf(form, o.gap_bytes / scale) FROM unit WHERE low <= o.gap_bytes ORDER BY low DESC LIMIT 1)
               || ' more of this process were not recorded (context, modules, libraries)' ELSE '' END
       || CASE WHEN o.other_bytes > 0 THEN '; other processes held ' || (SELECT printf(form, o.other_bytes / scale) FROM unit WHERE low <= o.other_bytes ORDER BY low DESC LIMIT 1) ELSE '' END AS why
FROM cached o LEFT JOIN scope_packed c ON c.id = o.scope_id LEFT JOIN scope_name n ON n.id = c.name_id LEFT JOIN stack s ON s.id = o.stack_id
LEFT JOIN frame f ON f.id = s.site_frame_id LEFT JOIN module m ON m.id = f.module_id;

-- What was live when a request was refused, by stack.
CREATE VIEW gpu_oom_site AS
SELECT x.oom_id, o.process_id, o.ts_ns, h.name AS heap, h.device, x.stack_id, x.live_bytes, x.live_count, g.library, f.function, f.file, f.line, m.path AS module,
       f.module_offset
FROM oom_site x JOIN oom o ON o.id = x.oom_id JOIN heap h ON h.id = x.heap_id
LEFT JOIN gpu_site g ON g.process_id = o.process_id AND g.heap_id = x.heap_id AND g.stack_id = x.stack_id
LEFT JOIN stack s ON s.id = x.stack_id LEFT JOIN frame f ON f.id = s.site_frame_id LEFT JOIN module m ON m.id = f.module_id;

-- What the lives of blocks on devices prove, by stack. leaked: live when the process began to leave. never_used: no launch, copy or set named it.
-- allocated_early, freed_late, idle: for at least 1 ms and a quarter of its life it waited for its first use, was kept after its last one, or lay between two,
-- while other work was launched (launches). churn: at least 10 blocks that lived less than 1 ms. redundant: at least 10 times a block was allocated after one of the
-- same size, stack and stream had been given back. Kinds that need uses have no rows where uses are not known (gpu_process.uses_known). Segments of an
-- allocator are not judged, only what it handed out of them; what it handed out is not judged for churn and redundant. count, bytes: of these blocks.
-- byte_seconds: sizes times the seconds of waiting. longest_duration_ns, launches, allocation_id: of the block that waited longest (churn: lived longest). evidence: in words.
CREATE VIEW gpu_inefficiency AS
SELECT i.process_id, h.name AS heap, h.device, i.kind, i.stack_id, i.count, i.bytes, round(i.byte_seconds, 6) AS byte_seconds, i.longest_duration_ns, i.launches,
       i.allocation_id, i.first_ns, i.last_ns, f.function, f.file, f.line, m.path AS module, f.module_offset,
       CASE i.kind
       WHEN 'leaked' THEN CASE i.count WHEN 1 THEN 'one block was live at exit' ELSE printf('%d blocks were live at exit', i.count) END
            || CASE WHEN i.longest_duration_ns IS NULL THEN '' ELSE printf(CASE i.count WHEN 1 THEN ', without any use for the last %.3f s' ELSE ', one of them without any use for the last %.3f s' END, i.longest_duration_ns / 1e9) END
       WHEN 'never_used' THEN printf('no work ever named %d of its blocks; one was held for %.3f s while %d %s launched (%d of %d launches'
                                     || ' of the process told what they use)', i.count, i.longest_duration_ns / 1e9, i.launches,
                                     CASE i.launches WHEN 1 THEN 'piece of work was' ELSE 'pieces of work were' END, w.told_launches, w.launches)
       WHEN 'allocated_early' THEN printf('allocated up to %.3f s before its first use, while %d %s launched', i.longest_duration_ns / 1e9, i.launches,
                                            CASE i.launches WHEN 1 THEN 'piece of other work was' ELSE 'pieces of other work were' END)
       WHEN 'freed_late' THEN printf('kept up to %.3f s after its last use, while %d %s launched', i.longest_duration_ns / 1e9, i.launches,
                                            CASE i.launches WHEN 1 THEN 'piece of other work was' ELSE 'pieces of other work were' END)
       WHEN 'idle' THEN printf('not used for up to %.3f s, while %d %s launched', i.longest_duration_ns / 1e9, i.launches,
                                            CASE i.launches WHEN 1 THEN 'piece of other work was' ELSE 'pieces of other work were' END)
       WHEN 'churn' THEN printf('%d blocks lived for less than 1 ms', i.count)
       ELSE printf('%d times, a block of the same size had just been given back', i.count) END AS evidence
FROM gpu_inefficiency_total i JOIN heap h ON h.id = i.heap_id LEFT JOIN gpu_process w ON w.process_id = i.process_id LEFT JOIN stack s ON s.id = i.stack_id
LEFT JOIN frame f ON f.id = s.site_frame_id LEFT JOIN module m ON m.id = f.module_id;

-- One row for each device that a process saw. peak_*: of the driver's blocks on it (heap cuda:N); allocated, reserved, active, inactive, idle (cached): the
-- peaks of the framework's allocator (pool_peak); used_peak_bytes: the most that the process occupied, by the device's own account, and gap_bytes what of that was
-- not recorded. Work: counts, and the sum of the times on the device.
CREATE VIEW gpu_summary AS
WITH seen AS (
	SELECT process_id, device FROM gpu_device UNION SELECT process_id, device FROM heap WHERE device IS NOT NULL
	UNION SELECT process_id, device FROM gpu_work_total WHERE device IS NOT NULL),
pools AS (SELECT * FROM pool_peak WHERE n IS NULL AND kind = 'tensor'),
work AS (
	SELECT process_id, device, sum(CASE kind WHEN 'kernel' THEN count END) AS kernels, sum(CASE kind WHEN 'kernel' THEN duration_ns END) AS kernel_duration_ns,
	       sum(CASE kind WHEN 'memcpy' THEN count END) AS copies, sum(CASE kind WHEN 'memcpy' THEN size_bytes END) AS copy_bytes,
	       sum(CASE kind WHEN 'memcpy' THEN duration_ns END) AS copy_duration_ns, sum(CASE kind WHEN 'memset' THEN count END) AS sets
	FROM gpu_work_total WHERE device IS NOT NULL GROUP BY process_id, device)
SELECT d.process_id, p.rank, d.device, g.name, g.uuid, g.total_bytes, t.peak_bytes, t.peak_ns, t.live_at_exit_bytes,
       k.allocated_bytes AS allocated_peak_bytes, k.allocated_ns AS allocated_peak_ns, k.reserved_bytes AS reserved_peak_bytes,
       k.reserved_ns AS reserved_peak_ns, k.active_bytes AS active_peak_bytes, k.inactive_bytes AS inactive_peak_bytes, k.idle_bytes AS idle_peak_bytes,
       k.fragmentation, (SELECT max(s.used_bytes) FROM gpu_gap_sample s WHERE s.process_id = d.process_id AND s.device = d.device) AS used_peak_bytes,
       (SELECT y.gap_bytes FROM gpu_gap y WHERE y.process_id = d.process_id AND y.device = d.device ORDER BY y.used_bytes DESC, y.ts_ns LIMIT 1) AS gap_bytes,
       coalesce(w.kernels, 0) AS kernels, w.kernel_duration_ns, coalesce(w.copies, 0) AS copies, w.copy_bytes, w.copy_duration_ns, coalesce(w.sets, 0) AS sets,
       (SELECT count(*) FROM oom o JOIN heap x ON x.id = o.heap_id WHERE o.process_id = d.process_id AND x.device = d.device) AS refusals
FROM seen d JOIN process p ON p.id = d.process_id LEFT JOIN gpu_device g ON g.process_id = d.process_id AND g.device = d.device
LEFT JOIN heap h ON h.process_id = d.process_id AND h.device = d.device AND h.kind = 'device' LEFT JOIN heap_total t ON t.process_id = d.process_id AND t.heap_id = h.id
LEFT JOIN pools k ON k.process_id = d.process_id AND k.device = d.device LEFT JOIN work w ON w.process_id = d.process_id AND w.device = d.device;
