-- tables.sql - the tables of a tidemark database.
--
-- Flow:   import (analyzer/store.c) creates them, fills them in one pass and adds the indexes at the bottom last -> views.sql -> reports.
-- Idea:   SQLite has no hash aggregation, so everything a report adds up is added up during import and lies here as an aggregate
--         (heap_total, site_total, timeline, ...). Only allocation_packed grows with the number of allocations; nothing but the view
--         `allocation` reads it.
-- Times:  integer nanoseconds since the start of the earliest trace in the database. Columns of times end in _ns.
-- Sizes:  integer bytes as the program requested them, unless a column says otherwise. Columns of sizes end in _bytes.
-- NULL:   unknown, or does not apply. Unknown is never 0.
-- Ids:    unique over the database, also with several traces in it. They count up but may have holes.
-- Sampled traces (trace.sample_bytes > 0): counts and bytes of estimated heaps are sums of size * weight and of weight, rounded once, when they
--         are written. heap.estimated and process.estimated say where. The standard error of such a sum is, of blocks of the view allocation, of bytes
--         sqrt(sum(weight * (weight - 1) * size_bytes * size_bytes)), and of counts sqrt(sum(weight * (weight - 1))).

-- What this database is. Keys: schema_version (of these tables), tool_version (of the tidemark that made it).
CREATE TABLE meta (
	key   TEXT PRIMARY KEY NOT NULL,
	value TEXT
);

-- One row for each trace file in the database.
CREATE TABLE trace (
	id              INTEGER PRIMARY KEY,
	path            TEXT NOT NULL,    -- as given to import
	host            TEXT,             -- where it was recorded; NULL unknown
	job             TEXT,             -- the batch system's job id; NULL none
	format_version  TEXT NOT NULL,    -- "major.minor" of the trace format; of another tool's recording its name and version: heaptrack 3
	start_unix_ns   INTEGER,          -- wall clock at the trace's own time 0, ns since 1970; NULL unknown
	clock           TEXT,             -- tsc or monotonic; NULL unknown
	clock_offset_ns INTEGER NOT NULL, -- added to the trace's own times to make the times of this database
	sample_bytes    INTEGER NOT NULL, -- mean of the Poisson sampling; 0: every allocation was recorded
	complete        INTEGER NOT NULL, -- 1: nothing is missing that could have been had; 0: the file is cut, or its recorder lost something
	command         TEXT,             -- the recorded command, arguments joined by spaces; NULL unknown
	tool_version    TEXT,             -- of the recorder; NULL unknown
	file_bytes      INTEGER NOT NULL, -- size of the trace file
	sound_bytes     INTEGER NOT NULL, -- of these, bytes before the place where reading stopped (= file_bytes for a whole file)
	cut_reason      TEXT,             -- why reading stopped before the end; NULL: the trace was closed and read to its end
	events          INTEGER NOT NULL, -- allocations and frees read, a realloc counting as both
	end_ns          INTEGER NOT NULL  -- the last time the trace knows of
);

-- Every key and value that the recorder wrote about the run, known to this version or not.
CREATE TABLE trace_info (
	trace_id INTEGER NOT NULL, -- trace.id
	key      TEXT NOT NULL,
	value    TEXT,
	PRIMARY KEY (trace_id, key)
) WITHOUT ROWID;

-- Every process of the recorded trees, also those that never allocated. An exec ends one row and starts another with the same pid.
CREATE TABLE process (
	id              INTEGER PRIMARY KEY,
	trace_id        INTEGER NOT NULL, -- trace.id
	pid             INTEGER,          -- the system's process id, as seen inside the program's pid namespace; NULL unknown
	parent_id       INTEGER,          -- process.id of the one that forked it, or that forked what became it by exec; NULL: the recorder started it
	rank            INTEGER,          -- rank in the launcher's world (MPI, torchrun, Slurm); NULL none
	local_rank      INTEGER,          -- rank on its host; NULL none
	world_size      INTEGER,          -- number of ranks; NULL none
	host            TEXT,             -- NULL unknown
	exe             TEXT,             -- path of the executable; NULL unknown
	command         TEXT,             -- arguments joined by spaces; NULL unknown or dropped by --args=drop
	start_ns        INTEGER NOT NULL,
	exit_ns         INTEGER NOT NULL, -- when it began to leave (main returned, exit was called, the interpreter that is the program finalizes); = end_ns
	                                  -- where it never did: killed, exec'd, or the trace does not say
	end_ns          INTEGER NOT NULL, -- its last event, or its death if that is known and later; of one that the trace does not see end, up to when it is known
	end_kind        TEXT NOT NULL,    -- exit, signal, exec, unknown
	end_code        INTEGER,          -- exit status, or signal number; NULL for exec and unknown
	forked          INTEGER NOT NULL, -- 1: made by fork; blocks inherited are not rows of it
	execed          INTEGER NOT NULL, -- 1: made by exec
	recorded        INTEGER NOT NULL, -- 0: it could not be recorded (static, 32-bit, ...); note says why
	inherited_frees INTEGER,          -- frees of blocks and mappings that it inherited over fork; in no other number. Of sampled ones as many as were drawn:
	                                  -- what the others stand for is not known. NULL: it stopped its recording for a while, and what it freed may be from then
	estimated       INTEGER NOT NULL, -- 1: its numbers are estimates from samples
	world           TEXT              -- what its rank counts in, by the launcher's name of it, or HOST:PID of the process above all its ranks (and Hydra's proxies); NULL unknown,
	                                  -- or no rank
);

-- Spans of processes' lives that the recording does not know, on purpose or not, whatever happened in them. Single events that were lost stand in `loss`.
-- kind, and the span: dropped, from the process' start to the window that --max-size=SIZE,ring kept (what was live then is known); stopped, from tidemark_stop() to
-- tidemark_start() (frees are known); max-size, from where --max-size=SIZE ended the recording; cut, from when on events may be missing as the trace could not be
-- read further; copy, from
-- when the trace was copied while the process ran on (tidemark dump, --dumps); still-running, from when the recorder waited no longer for it
-- (--linger), or recorded nothing more of it as it had given up the clock (prctl PR_SET_TSC, strict seccomp).
CREATE TABLE coverage_gap (
	process_id INTEGER NOT NULL, -- process.id
	kind       TEXT NOT NULL,
	start_ns   INTEGER NOT NULL,
	end_ns     INTEGER,          -- NULL: to the end of the process, whenever that was
	PRIMARY KEY (process_id, start_ns, kind)
) WITHOUT ROWID;

CREATE TABLE thread (
	id         INTEGER PRIMARY KEY,
	process_id INTEGER NOT NULL, -- process.id
	tid        INTEGER,          -- the system's thread id; NULL unknown: one row stands for all threads
	name       TEXT,             -- the last one it had; of one that did not end by itself, the last that was read from outside; NULL unknown
	start_ns   INTEGER,          -- first seen; NULL unknown
	end_ns     INTEGER           -- NULL: it lived as long as its process
);

-- Anything that hands out memory, one row for each process that used it.
CREATE TABLE heap (
	id         INTEGER PRIMARY KEY,
	process_id INTEGER NOT NULL, -- process.id
	name       TEXT NOT NULL,    -- malloc, mmap (anonymous mappings, /dev/zero and brk), mmap-file (mapped files), cuda:0, torch.cpu, a pool's own name
	kind       TEXT NOT NULL,    -- host, mapping, file, device, pool, ...
	device     INTEGER,          -- index of the device; NULL: host memory
	parent_id  INTEGER,          -- heap.id of the heap that its memory comes from; NULL: from no other heap
	is_root    INTEGER NOT NULL, -- 1: added into its process' live bytes and peak: host memory that lies in no other heap. mmap-file is not: its pages
	                             -- belong to the page cache; nor are heaps of devices, pinned and managed memory, and those of Python, NVTX and ITT
	estimated  INTEGER NOT NULL  -- 1: its numbers are estimates from samples
);

CREATE TABLE module (
	id           INTEGER PRIMARY KEY,
	process_id   INTEGER NOT NULL, -- process.id
	path         TEXT NOT NULL,
	build_id     TEXT,             -- hexadecimal; NULL: it has none
	base_address INTEGER NOT NULL, -- load bias: address - base_address is the ELF virtual address
	low_address  INTEGER NOT NULL, -- lowest mapped address
	size_bytes   INTEGER NOT NULL, -- mapped extent from low_address
	load_ns      INTEGER NOT NULL, -- when it was first seen
	unload_ns    INTEGER           -- NULL: it stayed
);

-- One row for each place in the code that a stack names. A native address into which functions were inlined gives several rows: one of kind
-- native for the function that was compiled there, one of kind inline for each function inlined into it, all with its module and offset.
CREATE TABLE frame (
	id            INTEGER PRIMARY KEY,
	kind          TEXT NOT NULL,    -- native, inline, python, kernel, unknown (no module at all)
	function      TEXT,             -- demangled (C++, Rust); NULL unless a symbol's range covers the address
	file          TEXT,             -- source file; NULL unknown
	line          INTEGER,          -- source line; NULL unknown
	module_id     INTEGER,          -- module.id; NULL for kind unknown
	module_offset INTEGER,          -- return address - base_address; for kind unknown the return address itself; NULL for python,
	                                -- and where another tool did not tell it
	is_wrapper    INTEGER NOT NULL  -- 1: it belongs to an allocator, so it is never a site (schema/wrapper_names.h lists them)
);

-- The tree of call stacks. A stack is its innermost node; its ancestors lead outward to main. Ids are the database's own: inlined functions are
-- nodes of their own here, and operator new and inlined malloc are left out at the inner end (allocation.api says what was called).
CREATE TABLE stack (
	id            INTEGER PRIMARY KEY, -- 0 is the empty stack: none was taken
	parent_id     INTEGER,             -- stack.id one frame further out; 0: this one is outermost; NULL for 0 itself
	frame_id      INTEGER,             -- frame.id; NULL for 0
	depth         INTEGER NOT NULL,    -- number of frames from here outward; 0 for 0
	site_frame_id INTEGER              -- frame.id of the site: the innermost Python frame, else the innermost that is no allocator's wrapper, else
	                                   -- the innermost; NULL for 0
);

-- The texts of scopes: names and categories. 0 is [unscoped].
CREATE TABLE scope_name (
	id   INTEGER PRIMARY KEY,
	text TEXT NOT NULL
);

-- A named interval on one thread, ids in the order of opening (across all processes of a trace). Read it through the view `scope`. Row 0 is
-- [unscoped], with NULL for everything but its name and depth.
CREATE TABLE scope_packed (
	id               INTEGER PRIMARY KEY,
	parent_id        INTEGER,          -- scope.id of the innermost one of its thread that was open all the while it was; NULL: none
	process_id       INTEGER,          -- process.id
	thread_id        INTEGER,          -- thread.id of the thread that opened it
	name_id          INTEGER NOT NULL, -- scope_name.id
	category_id      INTEGER,          -- scope_name.id
	start_ns         INTEGER,
	end_ns           INTEGER,
	end_kind         INTEGER,          -- 0 closed, 1 exception, 2 abandoned, 3 thread, 4 process
	depth            INTEGER NOT NULL, -- its parent's and one; 0: it has none
	forward_scope_id INTEGER           -- scope.id
);
-- Import writes it with the rows. All other indexes are made when every row is there, by views.sql.
CREATE INDEX scope_by_process ON scope_packed(process_id, start_ns);

-- A process-wide interval that repeats, such as a training iteration.
CREATE TABLE step (
	id         INTEGER PRIMARY KEY,
	process_id INTEGER NOT NULL, -- process.id
	n          INTEGER NOT NULL, -- its number, as the program gave it
	start_ns   INTEGER NOT NULL,
	end_ns     INTEGER           -- the next step's start; of the last one the exit of its process
);

-- What allocation_packed rows have in common: who called what.
CREATE TABLE allocation_origin (
	id         INTEGER PRIMARY KEY,
	process_id INTEGER NOT NULL, -- process.id
	heap_id    INTEGER NOT NULL, -- heap.id
	thread_id  INTEGER NOT NULL, -- thread.id of the thread that allocated
	api        TEXT NOT NULL     -- the C function that was called: malloc, calloc, realloc, posix_memalign, ..., mmap, mremap, sbrk, brk
);

-- Live at ns: alloc_ns <= ns < free_ns. What several threads do within one nanosecond therefore does not add up: what ends goes before what begins, but
-- where one thread's own order, or the address, tells another. Kept instants, levels, peaks and snapshots all hold to this.
-- One row for each block; ids follow the order in which blocks ended, those still live at the end come last. Read it through the view `allocation`.
-- A mapping that is given back in parts has one row for each part that has a lifetime of its own: all have the mapping's alloc_ns and stack, their
-- sizes add up to its size, and the parts that outlived a partial munmap name the part given back in realloc_of_id.
CREATE TABLE allocation_packed (
	id             INTEGER PRIMARY KEY,
	origin_id      INTEGER NOT NULL, -- allocation_origin.id
	address        INTEGER,          -- NULL unknown
	size_bytes     INTEGER NOT NULL, -- as requested; more than 2^47, an address space, counts as that
	slack_bytes    INTEGER,          -- what the allocator gave beyond that; NULL unknown
	alloc_ns       INTEGER NOT NULL, -- just after the allocator returned
	stack_id       INTEGER NOT NULL, -- stack.id
	lifetime_ns    INTEGER,          -- until just before it was freed; NULL: never freed. Where events were lost: to the next free of its address
	                                 -- that is in the trace
	free_thread    INTEGER,          -- thread.id that freed it, 0: the one that allocated it, -1: the same, before its next allocation (a
	                                 -- temporary block); NULL: never freed, or its free was lost
	realloc_of_id  INTEGER,          -- id of the block that realloc or mremap turned into this one, or that a mapping was split from; NULL none
	weight         REAL,             -- how many blocks it stands for in a sampled trace, 1/(1-exp(-size/mean)); NULL: exactly 1
	scope_id       INTEGER,          -- scope.id of the innermost scope open on the allocating thread; NULL: [unscoped]
	free_scope_id  INTEGER           -- the same of the thread that freed it; NULL: [unscoped], or as free_thread says
);

-- A named instant.
CREATE TABLE mark (
	id         INTEGER PRIMARY KEY,
	process_id INTEGER NOT NULL, -- process.id
	thread_id  INTEGER,          -- thread.id; NULL: made by the recorder
	name       TEXT NOT NULL,
	ts_ns      INTEGER NOT NULL
);

-- What the recorder measured from outside, at its interval and soon after each mark, while the process ran on: ts_ns is when it was read. Marks that
-- follow one another at once may share a reading; a process that ended right after its mark may have none for it.
-- tool_rss: what is resident in the process of the recorder's shared buffers and of its library's file (not the library's private
-- tables, a few hundred KiB), as of the last look at the process' mappings, with what it has written to new pages of the buffers since; with process_id
-- NULL the recorder's own process. vms is without these.
CREATE TABLE sample (
	trace_id   INTEGER NOT NULL, -- trace.id
	process_id INTEGER,          -- process.id; NULL: the machine or the cgroup that the trace was recorded in
	name       TEXT NOT NULL,    -- rss, rss_peak, pss, vms, swap, cgroup, device_used, tool_rss, ... and, where the mappings were looked at with this
	                             -- reading, what is resident by kind of mapping, tidemark's own left out: rss_heap (brk), rss_arenas (glibc's,
	                             -- of threads), rss_anonymous, rss_stacks, rss_files (mapped as shared or not), rss_shared (shared memory)
	ts_ns      INTEGER NOT NULL,
	value      INTEGER NOT NULL  -- bytes, unless the name says otherwise
);

-- Where a caching allocator stands, as it says itself.
CREATE TABLE pool_state (
	heap_id         INTEGER NOT NULL, -- heap.id
	ts_ns           INTEGER NOT NULL,
	allocated_bytes INTEGER,          -- handed out
	reserved_bytes  INTEGER,          -- held from its parent heap
	active_bytes    INTEGER,          -- not yet reusable
	inactive_bytes  INTEGER           -- split off and free, cannot be given back
);

-- What ran on a device.
CREATE TABLE gpu_activity (
	id             INTEGER PRIMARY KEY,
	process_id     INTEGER NOT NULL, -- process.id
	kind           TEXT NOT NULL,    -- kernel, memcpy, memset
	direction      TEXT,             -- h2d, d2h, d2d, p2p; NULL: no copy
	name           TEXT,
	device         INTEGER,
	stream         INTEGER,
	start_ns       INTEGER NOT NULL,
	end_ns         INTEGER NOT NULL,
	size_bytes     INTEGER,          -- NULL for kernels
	scope_id       INTEGER,          -- scope.id it was launched from
	correlation_id INTEGER,          -- the driver's number of the launching call
	thread_id      INTEGER,          -- thread.id of the launching call; NULL: the call was not recorded
	stack_id       INTEGER,          -- stack.id of it; 0: none was taken
	launch_ns      INTEGER           -- when it returned
);

-- The devices of a process.
CREATE TABLE gpu_device (
	process_id  INTEGER NOT NULL, -- process.id
	device      INTEGER NOT NULL, -- as the process numbers it
	name        TEXT,
	uuid        TEXT,             -- hexadecimal: the same device in other processes and for other tools
	total_bytes INTEGER,
	PRIMARY KEY (process_id, device)
) WITHOUT ROWID;

-- Time that devices cost the host.
CREATE TABLE gpu_overhead (
	process_id     INTEGER NOT NULL, -- process.id
	kind           TEXT NOT NULL,    -- call: one of the driver's memory functions; overhead: what driver and profiling interface took for themselves
	name           TEXT,             -- the function, or what for
	start_ns       INTEGER NOT NULL,
	end_ns         INTEGER NOT NULL,
	correlation_id INTEGER
);

-- Streams of allocations: of blocks of pools, by the number that gpu_activity has; in older traces and recordings of other tools all that the driver said of its
-- allocations, beside the rows of allocation that the calls made.
CREATE TABLE gpu_memory (
	process_id     INTEGER NOT NULL, -- process.id
	ts_ns          INTEGER NOT NULL,
	operation      TEXT NOT NULL,    -- allocate, release
	memory_kind    TEXT,             -- device, managed, pinned, array, ...
	device         INTEGER,
	stream         INTEGER,
	address        INTEGER,
	size_bytes     INTEGER,
	correlation_id INTEGER           -- of the call
);

-- Work that reads or writes memory of a device.
CREATE TABLE gpu_use (
	process_id     INTEGER NOT NULL, -- process.id
	thread_id      INTEGER,          -- thread.id
	ts_ns          INTEGER NOT NULL, -- when it was launched
	address        INTEGER NOT NULL, -- of a block or inside of one
	correlation_id INTEGER           -- gpu_activity's of the same process
);

-- gpu_activity and gpu_overhead added up: kinds kernel, memcpy, memset, call, overhead.
CREATE TABLE gpu_work_total (
	process_id  INTEGER NOT NULL, -- process.id
	kind        TEXT NOT NULL,
	direction   TEXT,
	name        TEXT,
	device      INTEGER,
	count       INTEGER NOT NULL,
	duration_ns INTEGER NOT NULL, -- sum: what ran at the same time counts as often
	longest_duration_ns INTEGER NOT NULL,
	size_bytes  INTEGER,          -- of copies and sets
	first_ns    INTEGER NOT NULL, -- when the first one began
	last_ns     INTEGER NOT NULL  -- when the last one ended
);

-- One row for each block of a heap of a device, of managed and of page-locked memory, with what used it: allocation's rows of these heaps, which are few next to
-- the host's. uses is NULL, and all that is told by uses, where they are not known: the process never said what its work uses (gpu_process), or the
-- block has no address that work could name.
CREATE TABLE gpu_block (
	allocation_id   INTEGER PRIMARY KEY, -- allocation.id
	process_id      INTEGER NOT NULL,    -- process.id
	heap_id         INTEGER NOT NULL,    -- heap.id
	thread_id       INTEGER NOT NULL,    -- thread.id that allocated
	stack_id        INTEGER NOT NULL,    -- stack.id
	address         INTEGER NOT NULL,
	size_bytes      INTEGER NOT NULL,
	stream          INTEGER,             -- as the driver told it; NULL unknown
	alloc_ns        INTEGER NOT NULL,
	free_ns         INTEGER,             -- NULL: never freed
	uses            INTEGER,             -- arguments of launches, ends of copies and sets that lie in it
	first_use_ns    INTEGER,
	last_use_ns     INTEGER,
	idle_duration_ns INTEGER,            -- longest time between two uses in a row; of those in which other work was launched, where there is one
	idle_from_ns    INTEGER,             -- when that began
	launches_before INTEGER,             -- launches of its process between its allocation and its first use
	launches_idle   INTEGER,             -- in idle_duration_ns
	launches_after  INTEGER,             -- after its last use, until it was freed or the process ended
	tenants         INTEGER NOT NULL     -- blocks of an allocator's heap (kind tensor) that began in it: more than 0 is a segment of that allocator
);

-- What is known of the work of a process that used devices.
CREATE TABLE gpu_process (
	process_id    INTEGER PRIMARY KEY, -- process.id
	launches      INTEGER NOT NULL,    -- launches, copies and sets that were recorded
	told_launches INTEGER NOT NULL,    -- of these, those with a use that lies in a block
	kernels       INTEGER NOT NULL,    -- of launches, kernels
	told_kernels  INTEGER NOT NULL,
	graphs        INTEGER NOT NULL,    -- of launches, whole graphs, which do not tell what they use
	uses          INTEGER NOT NULL,    -- that lie in a block
	stray_uses    INTEGER NOT NULL,    -- that lie in none, nor in page-locked memory: words that only looked like addresses, or blocks from before
	some_untold   INTEGER NOT NULL,    -- 1: some work uses memory that it does not tell (parameters that the driver does not describe)
	uses_known    INTEGER NOT NULL     -- 1: gpu_block.uses is known. 0: nothing or not all was told, of kernels nothing, graphs were launched, or recording was off
);

-- Stacks that took memory of devices, with the library that asked: schema/gpu_libraries.h lists those that are known.
CREATE TABLE gpu_site (
	process_id INTEGER NOT NULL, -- process.id
	heap_id    INTEGER NOT NULL, -- heap.id
	stack_id   INTEGER NOT NULL, -- stack.id
	library    TEXT,             -- NULL: none of these, so the program itself
	PRIMARY KEY (process_id, heap_id, stack_id)
) WITHOUT ROWID;

-- What the life of blocks of devices proves, by stack. Kinds: leaked, never_used, allocated_early, freed_late, idle, churn, redundant; views.sql tells at
-- gpu_inefficiency what each means.
CREATE TABLE gpu_inefficiency_total (
	process_id    INTEGER NOT NULL, -- process.id
	heap_id       INTEGER NOT NULL, -- heap.id
	kind          TEXT NOT NULL,
	stack_id      INTEGER NOT NULL, -- stack.id
	count         INTEGER NOT NULL, -- blocks
	bytes         INTEGER NOT NULL, -- their sizes
	byte_seconds  REAL,             -- sizes times the seconds for which they were held to no use; NULL for churn and redundant
	longest_duration_ns    INTEGER,          -- the longest such time of one block; churn: the longest life
	launches      INTEGER,          -- in that time, launches of other work
	allocation_id INTEGER NOT NULL, -- allocation.id of that block
	first_ns      INTEGER NOT NULL, -- when the first of the blocks was allocated
	last_ns       INTEGER NOT NULL, -- and the last one
	PRIMARY KEY (process_id, heap_id, kind, stack_id)
) WITHOUT ROWID;

-- What a process occupies on a device (the sample device_used:N), and what it has live there then: in the driver's own heap, in its pools, and of an allocator
-- whose heap lies in no other (where the driver was not recorded).
CREATE TABLE gpu_gap_sample (
	process_id   INTEGER NOT NULL, -- process.id
	device       INTEGER NOT NULL,
	ts_ns        INTEGER NOT NULL,
	used_bytes   INTEGER NOT NULL,
	device_bytes INTEGER NOT NULL,
	pool_bytes   INTEGER NOT NULL,
	tensor_bytes INTEGER NOT NULL
);

-- The peaks of heaps between resets (reset_peak), for heaps that were reset at all. 0 is up to the first reset.
CREATE TABLE peak_period (
	process_id INTEGER NOT NULL, -- process.id
	heap_id    INTEGER NOT NULL, -- heap.id
	n          INTEGER NOT NULL,
	start_ns   INTEGER NOT NULL,
	end_ns     INTEGER NOT NULL,
	peak_ns    INTEGER NOT NULL,
	peak_bytes INTEGER NOT NULL,
	peak_count INTEGER NOT NULL,
	PRIMARY KEY (process_id, heap_id, n)
) WITHOUT ROWID;

-- Requests for memory that were refused; in a sampled trace those of less than 64 KiB by chance. segment_*, largest_free_bytes: of the driver's blocks in which an allocator's had begun (heaps of kind tensor on
-- that device) what they hold, what of it is in no such block, and the longest piece of that; NULL where no such segment is known.
CREATE TABLE oom (
	id                 INTEGER PRIMARY KEY,
	process_id         INTEGER NOT NULL, -- process.id
	thread_id          INTEGER,          -- thread.id
	ts_ns              INTEGER NOT NULL,
	heap_id            INTEGER,          -- heap.id
	api                TEXT,             -- the function that refused
	size_bytes         INTEGER,          -- asked for; NULL: for itself (a launch, a context, a module), which is not told
	result             TEXT,             -- what it returned
	stack_id           INTEGER,          -- stack.id
	scope_id           INTEGER,          -- scope.id; NULL: none was open
	device_free_bytes  INTEGER,
	device_total_bytes INTEGER,
	segment_bytes      INTEGER,
	segment_free_bytes INTEGER,
	largest_free_bytes INTEGER,
	explained          INTEGER           -- 1: oom_site has what was live then; 0: there were too many refusals to keep it for this one, or its heap is not known
);

-- What was live when a request was refused: in the heaps of the same device and process, or in the heap itself where it is no device's.
CREATE TABLE oom_site (
	oom_id     INTEGER NOT NULL, -- oom.id
	heap_id    INTEGER NOT NULL, -- heap.id
	stack_id   INTEGER NOT NULL, -- stack.id
	live_bytes INTEGER NOT NULL,
	live_count INTEGER NOT NULL,
	PRIMARY KEY (oom_id, heap_id, stack_id)
) WITHOUT ROWID;

-- What was live in one heap at an instant that was kept. Labels: start, exit, end (of the process; no exit where it ended by exec), peak (of this heap),
-- process-peak (of the process over its root heaps; in those only), mark:NAME, baseline, and the program's own labels as it gave them (a label that
-- is one of these words or begins with mark: has snapshot: before it). At start nothing is live yet, also where another tool's file has blocks from before.
CREATE TABLE snapshot (
	id         INTEGER PRIMARY KEY,
	process_id INTEGER NOT NULL, -- process.id
	label      TEXT NOT NULL,
	ts_ns      INTEGER NOT NULL,
	heap_id    INTEGER NOT NULL, -- heap.id
	live_bytes INTEGER NOT NULL,
	live_count INTEGER NOT NULL,
	detailed   INTEGER NOT NULL  -- 1: snapshot_stack adds up to it; 0: there were too many marks to keep the stacks of this one
);

-- The same by stack; stacks with nothing live have no row.
CREATE TABLE snapshot_stack (
	snapshot_id INTEGER NOT NULL, -- snapshot.id
	stack_id    INTEGER NOT NULL, -- stack.id
	live_bytes  INTEGER NOT NULL,
	live_count  INTEGER NOT NULL,
	PRIMARY KEY (snapshot_id, stack_id)
) WITHOUT ROWID;

-- A heap around and inside of one scope instance that touched it. Kept of the first 100 instances of each name and category in a process; a note
-- counts the others. Read it through the view scope_snapshot, which adds what pool_state and sample say.
CREATE TABLE scope_snapshot_packed (
	scope_id   INTEGER NOT NULL, -- scope.id
	heap_id    INTEGER NOT NULL, -- heap.id
	phase      INTEGER NOT NULL, -- 0 baseline (the latest one before its end, else the start of the process), 1 before (it opened), 2 peak
	                             -- (the first instant of most live bytes while it was open), 3 after (it closed)
	ts_ns      INTEGER NOT NULL,
	live_bytes INTEGER NOT NULL,
	live_count INTEGER NOT NULL,
	created    INTEGER,          -- blocks (and parts that cuts of mappings made) since the phase before, by any thread; NULL for baseline, and where that was later
	deleted    INTEGER,          -- blocks gone since the phase before, likewise
	PRIMARY KEY (scope_id, heap_id, phase)
) WITHOUT ROWID;

-- What happened and is not in the trace, or does not fit together.
CREATE TABLE loss (
	trace_id   INTEGER NOT NULL, -- trace.id
	process_id INTEGER,          -- process.id; NULL: not known whose
	thread_id  INTEGER,          -- thread.id; NULL: not known whose, or all
	kind       TEXT NOT NULL,    -- the recorder's kinds, and from import: lost-free (an address was allocated again while live: the old block ends
	                             -- there), unmatched-free (a free of an address that was not live), unmatched-scope-end (a scope was
	                             -- ended that was not open: popped too often, or opened by the parent before a fork),
	                             -- timeless-event, sizeless-event: an event of torch.profiler's whose time or size is missing or no number,
	                             -- or whose time is more than 9 years from the middle one of all;
	                             -- records: scopes, marks, pools, ends of threads and the like; gpu-records: work on devices
	count      INTEGER NOT NULL, -- events; of records, gpu-records and unmatched-scope-end: those
	bytes      INTEGER,          -- bytes those events allocated (recorder), or of the blocks (lost-free); NULL unknown
	reason     TEXT
);

-- What the recorder has to say about a process.
CREATE TABLE note (
	process_id INTEGER,          -- process.id; NULL: about the whole recording
	ts_ns      INTEGER NOT NULL,
	kind       TEXT NOT NULL,
	text       TEXT NOT NULL
);

-- A threshold that was crossed.
CREATE TABLE alert (
	process_id INTEGER,          -- process.id; NULL: not of one process
	ts_ns      INTEGER NOT NULL,
	rule       TEXT NOT NULL,    -- as given to --alert
	value      INTEGER NOT NULL  -- what was measured, in bytes
);

-- Aggregates, filled by import, read through views.

-- The run of one heap, and with heap_id 0 of the whole process over its root heaps. A process that could not be recorded has no row.
CREATE TABLE heap_total (
	process_id         INTEGER NOT NULL, -- process.id
	heap_id            INTEGER NOT NULL, -- heap.id; 0: the process
	allocations        INTEGER NOT NULL, -- calls that allocated, a realloc being one
	allocated_bytes    INTEGER NOT NULL,
	frees              INTEGER NOT NULL, -- blocks given back; each part of a mapping that is given back on its own counts
	freed_bytes        INTEGER NOT NULL,
	temporary          INTEGER NOT NULL, -- blocks freed by the same thread before its next allocation
	temporary_bytes    INTEGER NOT NULL,
	peak_ns            INTEGER NOT NULL, -- the first instant at which live bytes were highest; start_ns of the process if nothing ever was live
	peak_bytes         INTEGER NOT NULL, -- live then
	peak_count         INTEGER NOT NULL, -- blocks (and parts of mappings) live then
	live_at_exit_bytes INTEGER NOT NULL, -- live when the process began to leave: what leaks are judged by. 0 where it ended by exec
	live_at_exit_count INTEGER NOT NULL,
	live_at_end_bytes  INTEGER NOT NULL, -- allocated_bytes - freed_bytes
	live_at_end_count  INTEGER NOT NULL,
	PRIMARY KEY (process_id, heap_id)
) WITHOUT ROWID;

-- The run of one stack in one heap; columns as in heap_total.
CREATE TABLE site_total (
	process_id         INTEGER NOT NULL, -- process.id
	heap_id            INTEGER NOT NULL, -- heap.id
	stack_id           INTEGER NOT NULL, -- stack.id
	allocations        INTEGER NOT NULL,
	allocated_bytes    INTEGER NOT NULL,
	frees              INTEGER NOT NULL, -- of blocks that this stack allocated, wherever they were freed
	freed_bytes        INTEGER NOT NULL,
	temporary          INTEGER NOT NULL,
	temporary_bytes    INTEGER NOT NULL,
	peak_bytes         INTEGER NOT NULL, -- live at the peak of its heap: these add up to heap_total.peak_bytes
	peak_count         INTEGER NOT NULL,
	process_peak_bytes INTEGER NOT NULL, -- live at the peak of its process over the root heaps; 0 in other heaps
	process_peak_count INTEGER NOT NULL,
	live_at_exit_bytes INTEGER NOT NULL,
	live_at_exit_count INTEGER NOT NULL,
	live_at_end_bytes  INTEGER NOT NULL,
	live_at_end_count  INTEGER NOT NULL,
	short_lived        INTEGER NOT NULL DEFAULT 0, -- blocks freed within 1 ms
	short_lived_bytes  INTEGER NOT NULL DEFAULT 0,
	reallocations      INTEGER NOT NULL DEFAULT 0, -- of allocations: made by a realloc or mremap of another block
	reallocated_bytes  INTEGER NOT NULL DEFAULT 0, -- their new sizes
	longest_chain      INTEGER NOT NULL DEFAULT 0, -- most reallocations in a row that one block went through up to one made here, at most 65,535
	same_size          INTEGER NOT NULL DEFAULT 0, -- of allocations: of the same size as the one before at this stack
	slack_bytes        INTEGER,                    -- what the allocator gave beyond the requests, over all allocations; NULL unknown
	mean_lifetime_ns   INTEGER,                    -- of blocks that were freed; NULL: none was
	PRIMARY KEY (process_id, heap_id, stack_id)
) WITHOUT ROWID;

-- How many blocks of which size a heap made: a row for each power of two that occurs, which has to_bytes - from_bytes + 1 sizes.
CREATE TABLE size_bucket (
	process_id      INTEGER NOT NULL, -- process.id
	heap_id         INTEGER NOT NULL, -- heap.id
	from_bytes      INTEGER NOT NULL, -- smallest requested size in it
	to_bytes        INTEGER NOT NULL, -- largest
	allocations     INTEGER NOT NULL,
	allocated_bytes INTEGER NOT NULL,
	PRIMARY KEY (process_id, heap_id, from_bytes)
) WITHOUT ROWID;

-- How long blocks that were freed had lived, likewise. What never was freed is in heap_total.live_at_end_count.
CREATE TABLE lifetime_bucket (
	process_id  INTEGER NOT NULL, -- process.id
	heap_id     INTEGER NOT NULL, -- heap.id
	from_ns     INTEGER NOT NULL, -- shortest lifetime in it
	to_ns       INTEGER NOT NULL, -- longest
	frees       INTEGER NOT NULL, -- each part of a mapping that is given back on its own counts
	freed_bytes INTEGER NOT NULL,
	PRIMARY KEY (process_id, heap_id, from_ns)
) WITHOUT ROWID;

-- The run of what is neither a heap nor a process, exact at every event; what a process holds when it ends, or becomes another program, goes
-- with it. Kinds and numbers: thread (thread.id: blocks of root heaps that it allocated, whoever frees them), rank (root heaps of all processes of that rank), device (its index in the
-- first process that used it: its memory that lies in no other heap, and the blocks of its pools, over all processes; not reserved addresses, nor memory
-- that another process shared).
CREATE TABLE level_total (
	trace_id          INTEGER NOT NULL, -- trace.id
	kind              TEXT NOT NULL,
	number            INTEGER NOT NULL,
	identity          TEXT NOT NULL, -- of a device its uuid, as gpu_device has it: processes may see different ones under one number; of a rank its
	                                 -- world, as process has it; '' unknown, or a thread
	allocations       INTEGER NOT NULL,
	allocated_bytes   INTEGER NOT NULL,
	peak_ns           INTEGER NOT NULL, -- the first instant at which live bytes were highest
	peak_bytes        INTEGER NOT NULL,
	peak_count        INTEGER NOT NULL,
	live_at_end_bytes INTEGER NOT NULL, -- when each of the processes ended
	live_at_end_count INTEGER NOT NULL,
	PRIMARY KEY (trace_id, kind, number, identity)
) WITHOUT ROWID;

-- Instants at which allocation_packed can be entered without reading it from the start: rows of the trace up to allocation_id had ended by ts_ns. The
-- first one of a trace stands before all its rows, the last one at its end, before the rows of what is live then. What was live at T, with c the first checkpoint whose ts_ns > T
-- and b the one before it, is among the rows with b.allocation_id < id <= c.allocation_id, and those above c.allocation_id that checkpoint_live lists
-- for c or an earlier checkpoint of the trace.
CREATE TABLE checkpoint (
	id            INTEGER PRIMARY KEY,
	trace_id      INTEGER NOT NULL, -- trace.id
	ts_ns         INTEGER NOT NULL,
	allocation_id INTEGER NOT NULL, -- allocation.id
	has_stacks    INTEGER NOT NULL  -- 1: checkpoint_stack has what was live then, and no mapping was split since the checkpoint before
);

-- Rows behind a checkpoint's allocation_id that were allocated before it, as ranges of ids; a few rows in them may have been allocated later. Each row
-- is listed once: for the first checkpoint behind its allocation.
CREATE TABLE checkpoint_live (
	checkpoint_id INTEGER NOT NULL, -- checkpoint.id
	first_id      INTEGER NOT NULL, -- allocation.id
	more          INTEGER NOT NULL, -- so many ids follow the first one
	PRIMARY KEY (checkpoint_id, first_id)
) WITHOUT ROWID;

-- What was live at a checkpoint, by stack.
CREATE TABLE checkpoint_stack (
	checkpoint_id INTEGER NOT NULL, -- checkpoint.id
	heap_id       INTEGER NOT NULL, -- heap.id
	stack_id      INTEGER NOT NULL, -- stack.id
	live_bytes    INTEGER NOT NULL,
	live_count    INTEGER NOT NULL,
	PRIMARY KEY (checkpoint_id, heap_id, stack_id)
) WITHOUT ROWID;

-- What a function allocated over the whole run.
CREATE TABLE function_aggregate (
	process_id  INTEGER NOT NULL, -- process.id
	heap_id     INTEGER NOT NULL, -- heap.id
	function    TEXT,             -- NULL: all frames without a name, and empty stacks
	self_bytes  INTEGER NOT NULL, -- allocated where it is the innermost frame
	total_bytes INTEGER NOT NULL, -- allocated where it is anywhere on the stack, once however often it recurs
	self_count  INTEGER NOT NULL, -- allocations, likewise
	total_count INTEGER NOT NULL
);

-- Live bytes over time: at most about 2,000 equal buckets a process and heap; of each the lowest, the highest and the last value, at their true times.
CREATE TABLE timeline (
	process_id INTEGER NOT NULL, -- process.id
	heap_id    INTEGER NOT NULL, -- heap.id; 0: the process over its root heaps
	ts_ns      INTEGER NOT NULL,
	live_bytes INTEGER NOT NULL, -- at ts_ns; until the next row where the bucket had no other values than its rows
	live_count INTEGER NOT NULL
);

-- Resident memory against what the trace explains, at every rss sample.
CREATE TABLE gap (
	process_id INTEGER NOT NULL, -- process.id
	ts_ns      INTEGER NOT NULL,
	rss_bytes  INTEGER NOT NULL, -- resident set of the process
	live_bytes INTEGER NOT NULL, -- live then over the root heaps, touched or not
	tool_bytes INTEGER           -- of the resident set, what belongs to tidemark (the sample tool_rss of the same time); NULL unknown
);

-- Scopes by name, category and heap; meanings in views.sql at scope_total. heap_id NULL: a name whose scopes touched no heap.
CREATE TABLE scope_aggregate (
	process_id            INTEGER NOT NULL, -- process.id
	heap_id               INTEGER,          -- heap.id
	name                  TEXT NOT NULL,
	category              TEXT,
	calls                 INTEGER,          -- instances, whatever they touched; NULL for [unscoped]
	outermost_calls       INTEGER,          -- of these, not inside another one of the same name and category
	duration_ns           INTEGER,          -- in which at least one was open, all threads together; NULL for [unscoped]
	calls_ns              INTEGER,          -- of outermost instances, added up, which counts twice where two overlap
	self_allocated_bytes  INTEGER NOT NULL,
	total_allocated_bytes INTEGER NOT NULL,
	self_freed_bytes      INTEGER NOT NULL,
	total_freed_bytes     INTEGER NOT NULL,
	self_allocations      INTEGER NOT NULL,
	total_allocations     INTEGER NOT NULL,
	self_frees            INTEGER NOT NULL,
	total_frees           INTEGER NOT NULL,
	own_freed_bytes       INTEGER NOT NULL,
	retained_bytes        INTEGER NOT NULL,
	peak_bytes            INTEGER,          -- NULL: it touched no heap
	peak_growth_bytes     INTEGER,
	peak_own_bytes        INTEGER,
	instances             INTEGER,          -- that touched this heap; NULL for [unscoped]
	growth_sum_bytes      INTEGER           -- sum of peak_growth_bytes over these
);

-- The same for one instance of a scope and each heap that it or a scope inside it touched.
CREATE TABLE scope_instance_aggregate (
	scope_id              INTEGER NOT NULL, -- scope.id
	heap_id               INTEGER NOT NULL, -- heap.id
	self_allocated_bytes  INTEGER NOT NULL,
	total_allocated_bytes INTEGER NOT NULL,
	self_freed_bytes      INTEGER NOT NULL,
	total_freed_bytes     INTEGER NOT NULL,
	self_allocations      INTEGER NOT NULL,
	total_allocations     INTEGER NOT NULL,
	self_frees            INTEGER NOT NULL,
	total_frees           INTEGER NOT NULL,
	own_freed_bytes       INTEGER NOT NULL,
	retained_bytes        INTEGER NOT NULL,
	peak_bytes            INTEGER NOT NULL,
	peak_growth_bytes     INTEGER NOT NULL,
	peak_own_bytes        INTEGER NOT NULL,
	PRIMARY KEY (scope_id, heap_id)
) WITHOUT ROWID;

-- Where a scope closed while others of its name (whatever their category) that were opened inside it stayed open: what such a later one had
-- done in a heap until then, which counts in both instances, and in their name, or on their line of a tree, once. Kept of the first four
-- of them and of the first with the same category; a heap in which one had done nothing has no row.
CREATE TABLE scope_overlap (
	scope_id        INTEGER NOT NULL, -- scope.id of the one that closed
	heap_id         INTEGER NOT NULL, -- heap.id
	later_scope_id  INTEGER NOT NULL, -- scope.id
	allocated_bytes INTEGER NOT NULL,
	freed_bytes     INTEGER NOT NULL,
	retained_bytes  INTEGER NOT NULL, -- of allocated_bytes, live when it closed
	PRIMARY KEY (scope_id, heap_id, later_scope_id)
) WITHOUT ROWID;

-- A step and a heap that did or held something in it, and with heap_id 0 its process over the root heaps.
-- One that began before the window that --max-size=SIZE,ring kept begins with it here, but for what survived.
CREATE TABLE step_aggregate (
	step_id         INTEGER NOT NULL, -- step.id
	heap_id         INTEGER NOT NULL, -- heap.id; 0: the process
	allocated_bytes INTEGER NOT NULL, -- by all threads
	allocations     INTEGER NOT NULL,
	freed_bytes     INTEGER NOT NULL,
	frees           INTEGER NOT NULL,
	begin_bytes     INTEGER NOT NULL, -- live when it began
	begin_count     INTEGER NOT NULL,
	end_bytes       INTEGER NOT NULL, -- live when it ended
	end_count       INTEGER NOT NULL,
	peak_bytes      INTEGER NOT NULL, -- most live bytes at any instant of it
	survived_bytes  INTEGER NOT NULL, -- allocated in it and still live when it ended
	survived_count  INTEGER NOT NULL, -- blocks, and parts of mappings that were cut
	PRIMARY KEY (step_id, heap_id)
) WITHOUT ROWID;

-- Call sites with blocks that were live when their process began to leave, scored by how much they look like leaks (analyzer/leak_score.h says how).
-- A row stands for all stacks with live blocks of one call site that are called from the same line of the program, or, where only some callers' blocks
-- look like a leak, for those of one caller; their sums add up to the process' live bytes at exit. Nothing where a process ended by exec.
CREATE TABLE leak_score (
	process_id            INTEGER NOT NULL, -- process.id
	heap_id               INTEGER NOT NULL, -- heap.id
	stack_id              INTEGER NOT NULL, -- stack.id of the one of most live bytes
	stacks                INTEGER NOT NULL, -- how many stacks this row stands for
	live_bytes            INTEGER NOT NULL, -- live at exit
	live_count            INTEGER NOT NULL,
	allocations           INTEGER NOT NULL, -- made by these stacks until the process left, freed or not; a mapping that was cut is one, and its live parts count in live_count
	growth_bytes_per_step REAL,             -- of their live bytes, over all steps behind the warm-up, and no more than since they began (Theil-Sen); NULL: no steps, or fewer than 4
	growth_p              REAL,             -- probability of such a trend upward where there is none (Mann-Kendall, one-sided); NULL: too few looks
	first_ns              INTEGER NOT NULL, -- oldest survivor
	last_ns               INTEGER NOT NULL, -- youngest survivor
	score                 REAL,             -- higher is more likely; NULL: nothing tells, as only one instant is known
	reason                TEXT,             -- in words
	suppressed            INTEGER NOT NULL, -- 1: a suppression matches it
	PRIMARY KEY (process_id, heap_id, stack_id)
) WITHOUT ROWID;

-- Which stacks a row of leak_score stands for.
CREATE TABLE leak_stack (
	process_id   INTEGER NOT NULL, -- process.id
	heap_id      INTEGER NOT NULL, -- heap.id
	stack_id     INTEGER NOT NULL, -- stack.id
	row_stack_id INTEGER NOT NULL, -- leak_score.stack_id of the row
	live_bytes   INTEGER NOT NULL, -- live at exit
	live_count   INTEGER NOT NULL,
	PRIMARY KEY (process_id, heap_id, stack_id)
) WITHOUT ROWID;

INSERT INTO stack(id, parent_id, frame_id, depth, site_frame_id) VALUES (0, NULL, NULL, 0, NULL);
INSERT INTO scope_name(id, text) VALUES (0, '[unscoped]');
INSERT INTO scope_packed(id, name_id, depth) VALUES (0, 0, 0);
