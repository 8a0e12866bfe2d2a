-- queries.sql - questions that people bring, answered in SQL: `tidemark query DB @` lists them, `tidemark query DB @peak-makers` runs one.
--
-- Each begins with a line "-- @name: the question" and ends before the next one; what stands between says how to read the answer. They are meant to be
-- copied and changed. Every one reads aggregates or what checkpoints point to, never all allocations.

-- @peak-makers: which call sites made up the peak of the process?
SELECT process_id, heap, coalesce(function, module || iif(module_offset IS NULL, '', printf('+0x%x', module_offset))) AS function,
       file, line, sum(live_bytes) AS live_bytes,
       round(1.0 * sum(live_bytes) / (SELECT p.live_bytes FROM peak AS p WHERE p.process_id = l.process_id AND p.heap IS NULL), 4) AS peak_share
FROM peak_lever AS l GROUP BY 1, 2, 3, 4, 5 ORDER BY 6 DESC LIMIT 20;

-- @peak-functions: which functions, wherever they were called from, held memory at the peak of each heap?
-- Those of a library whose names are missing stand together under its path.
SELECT process_id, heap, coalesce(function, module) AS function, sum(live_bytes) AS live_bytes, sum(live_count) AS live_count
FROM peak_site GROUP BY 1, 2, 3 ORDER BY live_bytes DESC LIMIT 20;

-- @peak-shape: is the peak a spike, and is there another one nearly as high?
SELECT * FROM peak_shape ORDER BY process_id, heap IS NOT NULL, live_bytes DESC;

-- @peak-ranks: which rank needed most memory, and how far are the others from it?
SELECT world, rank, ts_ns, live_bytes, round(1.0 * live_bytes / max(live_bytes) OVER (), 4) AS highest_share FROM rank_peak ORDER BY live_bytes DESC;

-- @peak-threads: whose allocations, by thread, were highest at any time?
SELECT process_id, thread_id, tid, name, ts_ns, live_bytes, live_count FROM thread_peak ORDER BY live_bytes DESC LIMIT 20;

-- @peak-devices: how much of each device was in use at most?
SELECT trace_id, device, ts_ns, live_bytes, live_count FROM device_peak ORDER BY live_bytes DESC;

-- @leaks-by-library: what did each library leave behind at exit?
SELECT process_id, heap, module AS path, sum(live_bytes) AS live_bytes, sum(live_count) AS live_count
FROM live_at_exit GROUP BY process_id, heap, module ORDER BY live_bytes DESC LIMIT 20;

-- @never-freed: which call sites never freed anything?
SELECT process_id, heap, coalesce(function, module || iif(module_offset IS NULL, '', printf('+0x%x', module_offset))) AS function,
       file, line, sum(allocations) AS allocations,
       sum(allocated_bytes) AS allocated_bytes
FROM site GROUP BY 1, 2, 3, 4, 5 HAVING sum(freed_bytes) = 0 AND sum(live_count) = sum(allocations) ORDER BY 7 DESC LIMIT 20;

-- @top-allocators: who allocates most often, and how much at a time?
-- Functions of a library whose names are missing stand together under its path.
SELECT process_id, heap, coalesce(function, module) AS function, sum(allocations) AS allocations, sum(allocated_bytes) / sum(allocations) AS mean_bytes
FROM site GROUP BY 1, 2, 3 HAVING sum(allocations) > 0 ORDER BY allocations DESC LIMIT 20;

-- @functions: what did each function allocate, itself and in all that it calls?
SELECT process_id, heap, function, self_bytes, total_bytes, self_count, total_count FROM function_total ORDER BY total_bytes DESC LIMIT 20;

-- @temporary: where are blocks freed before the thread's next allocation?
SELECT process_id, heap, coalesce(function, module || iif(module_offset IS NULL, '', printf('+0x%x', module_offset))) AS function,
       file, line, sum(temporary) AS count, sum(temporary_bytes) AS bytes,
       round(1.0 * sum(temporary) / sum(allocations), 4) AS share
FROM site GROUP BY 1, 2, 3, 4, 5 HAVING sum(temporary) > 0 ORDER BY count DESC LIMIT 20;

-- @same-size: where could a pool serve allocations of the same size again and again?
SELECT process_id, heap, coalesce(function, module || iif(module_offset IS NULL, '', printf('+0x%x', module_offset))) AS function,
       file, line, allocations, same_size_count,
       round(1.0 * same_size_count / allocations, 4) AS share, mean_life_duration_ns
FROM churn WHERE same_size_count > 0 ORDER BY same_size_count DESC LIMIT 20;

-- @growing-vectors: which call sites grow one block over and over?
SELECT process_id, heap, coalesce(function, module || iif(module_offset IS NULL, '', printf('+0x%x', module_offset))) AS function,
       file, line, realloc_count, longest_chain_count,
       reallocated_bytes
FROM realloc_site ORDER BY longest_chain_count DESC, realloc_count DESC LIMIT 20;

-- @rounding: how much does the allocator give beyond what was asked for?
-- Of the blocks whose room the allocator tells.
SELECT t.process_id, h.name AS heap, sum(t.slack_bytes) AS slack_bytes, sum(t.allocated_bytes) AS allocated_bytes,
       round(1.0 * sum(t.slack_bytes) / sum(t.allocated_bytes), 4) AS slack_share
FROM site_total t JOIN heap h ON h.id = t.heap_id WHERE t.slack_bytes IS NOT NULL GROUP BY 1, 2 HAVING sum(t.slack_bytes) > 0 ORDER BY slack_bytes DESC;

-- @sizes: how large are the blocks?
SELECT process_id, heap, from_bytes, to_bytes, allocations, round(1.0 * allocations / sum(allocations) OVER (PARTITION BY process_id, heap), 4) AS share
FROM size_histogram ORDER BY process_id, heap, from_bytes;

-- @lifetimes: how long do blocks live?
SELECT process_id, heap, from_duration_ns, to_duration_ns, frees, round(1.0 * frees / sum(frees) OVER (PARTITION BY process_id, heap), 4) AS share
FROM lifetime_histogram ORDER BY process_id, heap, from_duration_ns;

-- @gap: how far is resident memory from what is live, at its worst in each process?
SELECT process_id, ts_ns, rss_bytes, live_bytes, tool_bytes, max(gap_bytes) AS gap_bytes FROM memory_gap GROUP BY process_id ORDER BY gap_bytes DESC;

-- @gap-parts: what is in that gap: files, stacks, what allocators keep?
SELECT process_id, ts_ns, max(gap_bytes) AS gap_bytes, file_bytes, stack_bytes, shared_bytes, retained_bytes, unknown_bytes
FROM memory_gap_part GROUP BY process_id ORDER BY gap_bytes DESC;

-- @rss-against-live: how far is the most that was resident from the most that was live, whenever each was?
SELECT p.process_id, p.live_bytes AS peak_live_bytes, (SELECT max(value) FROM sample s WHERE s.process_id = p.process_id AND s.name IN ('rss', 'rss_peak'))
  AS peak_rss_bytes
FROM peak p WHERE p.heap IS NULL ORDER BY peak_live_bytes DESC;

-- @scopes-retained: which scopes leave most behind when they close?
SELECT process_id, heap, name, category, calls, retained_bytes, peak_growth_bytes FROM scope_total WHERE calls > 0 ORDER BY retained_bytes DESC LIMIT 20;

-- @scope-peaks: which single scope saw the highest level?
SELECT process_id, heap, name, scope_id, start_ns, live_bytes, peak_growth_bytes FROM scope_peak ORDER BY live_bytes DESC LIMIT 20;

-- @step-growth: does the memory that is live grow from step to step?
SELECT process_id, n AS step_id, live_end_bytes, live_end_bytes - lag(live_end_bytes) OVER (PARTITION BY process_id ORDER BY start_ns) AS change_bytes, survived_bytes
FROM step_total WHERE heap IS NULL ORDER BY process_id, start_ns;

-- @processes: what did each process of the tree cost?
SELECT p.id AS process_id, p.pid, p.command, p.end_kind, t.allocations, t.allocated_bytes, t.peak_bytes, t.live_at_exit_bytes
FROM process p LEFT JOIN heap_total t ON t.process_id = p.id AND t.heap_id = 0 ORDER BY t.peak_bytes DESC LIMIT 20;

-- @lost: what is missing from this database, and what did the recorder say?
SELECT process_id, kind, count, bytes, reason FROM loss
UNION ALL SELECT process_id, kind, NULL, NULL, printf('not known from %.6f s to ', start_ns / 1e9) || iif(end_ns IS NULL, 'its end', printf('%.6f s', end_ns / 1e9))
FROM coverage_gap
UNION ALL SELECT process_id, kind, NULL, NULL, text FROM note ORDER BY 1, 2;
