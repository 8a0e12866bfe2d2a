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

-- Peaks of what is neither a heap nor a process; tables.sql says at level_total what belongs to each. What one was made of: `tidemark snapshot --at` its
-- ts_ns, --by thread, heap or site.
CREATE VIEW thread_peak AS
SELECT t.process_id, l.number AS thread_id, t.tid, t.name, l.peak_ns AS ts_ns, l.peak_bytes AS live_bytes, l.peak_count AS live_count, l.allocations,
       l.allocated_bytes, l.live_at_end_bytes, p.estimated
FROM level_total l JOIN thread t ON t.id = l.number JOIN process p ON p.id = t.process_id WHERE l.kind = 'thread';

CREATE VIEW rank_peak AS
SELECT trace_id, number AS rank, peak_ns AS ts_ns, peak_bytes AS live_bytes, peak_count AS live_count, allocations, allocated_bytes, live_at_end_bytes
FROM level_total WHERE kind = 'rank';

CREATE VIEW device_peak AS
SELECT trace_id, number AS device, peak_ns AS ts_ns, peak_bytes AS live_bytes, peak_count AS live_count, allocations, allocated_bytes, live_at_end_bytes
FROM level_total WHERE kind = 'device';

-- Of each scope instance and heap; ts_ns is known of those that scope_snapshot keeps.
CREATE VIEW scope_peak AS
SELECT i.scope_id, i.process_id, i.thread_id, i.heap, i.name, i.category, p.ts_ns, i.peak_bytes AS live_bytes, i.peak_growth_bytes, i.peak_own_bytes,
       i.start_ns, i.end_ns, i.estimated
FROM scope_instance i LEFT JOIN heap h ON h.process_id = i.process_id AND h.name = i.heap
LEFT JOIN scope_snapshot_packed p ON p.scope_id = i.scope_id AND p.heap_id = h.id AND p.phase = 2
WHERE i.peak_bytes IS NOT NULL;

-- How sharp each peak is. second_*: the highest level that is a peak of its own: between it and the peak the level fell at least a tenth of the peak
-- below it; NULL: there is none. near_peak_duration_ns: how long the level was above nine tenths of the peak, to the width of the buckets of
-- memory_timeline (a two-thousandth of the run).
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
	SELECT process_id, heap_id, sum(next_ns - ts_ns) AS near_ns FROM level WHERE 10 * live_bytes >= 9 * peak_bytes GROUP BY process_id, heap_id)
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

-- Call stacks whose blocks live under a millisecond, or are of the same size as the one before again and again.
CREATE VIEW churn AS
SELECT t.process_id, h.name AS heap, t.stack_id, t.allocations, t.short_lived AS short_lived_count, t.short_lived_bytes, t.same_size AS same_size_count,
       t.mean_lifetime_ns AS mean_life_duration_ns, f.function, f.file, f.line, m.path AS module, f.module_offset, h.estimated
FROM site_total t JOIN heap h ON h.id = t.heap_id LEFT JOIN stack s ON s.id = t.stack_id LEFT JOIN frame f ON f.id = s.site_frame_id
LEFT JOIN module m ON m.id = f.module_id
WHERE t.short_lived > 0 OR t.same_size > 0;

-- Call stacks that reallocate. longest_chain_count: most reallocations in a row of one block that ended here.
CREATE VIEW realloc_site AS
SELECT t.process_id, h.name AS heap, t.stack_id, t.reallocations AS realloc_count, t.reallocated_bytes, t.longest_chain AS longest_chain_count,
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
-- memory, glibc's arenas of threads (live blocks included). pss_bytes, cgroup_bytes: the latest readings; NULL: none.
CREATE VIEW memory_gap_part AS
WITH look AS (
	SELECT g.process_id, g.ts_ns, g.rss_bytes, g.live_bytes, g.tool_bytes, g.gap_bytes, f.value AS file, s.value AS stack, c.value AS shared,
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
       (SELECT value FROM sample m WHERE m.process_id IS NULL AND m.name = 'cgroup' AND m.ts_ns <= four.ts_ns ORDER BY m.ts_ns DESC LIMIT 1) AS cgroup_bytes,
       live_bytes, tool_bytes, gap_bytes, file_bytes, stack_bytes, shared_bytes, retained_bytes,
       gap_bytes - file_bytes - stack_bytes - shared_bytes - retained_bytes AS unknown_bytes, arena AS arena_bytes
FROM four;

-- The twenty moments at which the gap changed most from one reading to the next, and what the program did between the two: its step, the innermost scope that was
-- open (of several the latest), and the stack that allocated most bytes.
CREATE VIEW memory_gap_jump AS
WITH change AS (
	SELECT process_id, lag(ts_ns) OVER w AS from_ns, ts_ns, gap_bytes - lag(gap_bytes) OVER w AS change_bytes, gap_bytes, rss_bytes, live_bytes
	FROM memory_gap WINDOW w AS (PARTITION BY process_id ORDER BY ts_ns)),
jump AS MATERIALIZED (
	SELECT j.*, p.trace_id FROM change j JOIN process p ON p.id = j.process_id WHERE change_bytes <> 0 ORDER BY abs(change_bytes) DESC, ts_ns LIMIT 20),
span AS MATERIALIZED (
	SELECT j.*, (SELECT min(c.id) FROM checkpoint c WHERE c.trace_id = j.trace_id AND c.ts_ns > j.from_ns) AS first_checkpoint,
	       (SELECT min(c.id) FROM checkpoint c WHERE c.trace_id = j.trace_id AND c.ts_ns > j.ts_ns) AS last_checkpoint
	FROM jump j),
row AS (
	SELECT s.process_id, s.ts_ns, a.stack_id, a.size_bytes, a.origin_id FROM span s
	CROSS JOIN allocation_packed a ON a.id > (SELECT b.allocation_id FROM checkpoint b WHERE b.id = s.first_checkpoint - 1)
	    AND a.id <= (SELECT b.allocation_id FROM checkpoint b WHERE b.id = s.last_checkpoint)
	WHERE a.alloc_ns > s.from_ns AND a.alloc_ns <= s.ts_ns
	UNION ALL
	SELECT s.process_id, s.ts_ns, a.stack_id, a.size_bytes, a.origin_id FROM span s
	CROSS JOIN checkpoint e ON e.id BETWEEN s.first_checkpoint AND s.last_checkpoint
	CROSS JOIN checkpoint_live r ON r.checkpoint_id = e.id
	    AND r.first_id > (SELECT b.allocation_id FROM checkpoint b WHERE b.id = s.last_checkpoint)
	CROSS JOIN allocation_packed a ON a.id BETWEEN r.first_id AND r.first_id + r.more
	WHERE a.alloc_ns > s.from_ns AND a.alloc_ns <= s.ts_ns AND a.alloc_ns < e.ts_ns AND a.alloc_ns >= (SELECT d.ts_ns FROM checkpoint d WHERE d.id = e.id - 1)),
made AS (
	SELECT r.process_id, r.ts_ns, r.stack_id, sum(r.size_bytes) AS bytes FROM row r JOIN allocation_origin o ON o.id = r.origin_id
	WHERE o.process_id = r.process_id GROUP BY r.process_id, r.ts_ns, r.stack_id),
most AS MATERIALIZED (SELECT process_id, ts_ns, stack_id, max(bytes) AS bytes FROM made GROUP BY process_id, ts_ns)
SELECT j.process_id, j.from_ns, j.ts_ns, j.change_bytes, j.gap_bytes, j.rss_bytes, j.live_bytes,
       (SELECT s.n FROM step s WHERE s.process_id = j.process_id AND s.start_ns <= j.ts_ns AND (s.end_ns IS NULL OR s.end_ns > j.from_ns)
        ORDER BY s.start_ns DESC LIMIT 1) AS step_id,
       (SELECT n.text FROM scope_packed s JOIN scope_name n ON n.id = s.name_id WHERE s.process_id = j.process_id AND s.start_ns <= j.ts_ns
        AND s.end_ns > j.from_ns ORDER BY s.depth DESC, s.start_ns DESC LIMIT 1) AS scope_name,
       m.stack_id, m.bytes AS allocated_bytes, f.function, f.file, f.line
FROM jump j LEFT JOIN most m ON m.process_id = j.process_id AND m.ts_ns = j.ts_ns LEFT JOIN stack s ON s.id = m.stack_id
LEFT JOIN frame f ON f.id = s.site_frame_id;
