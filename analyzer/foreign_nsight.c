/* foreign_nsight.c - `nsys export --type=sqlite`: memory events, NVTX ranges, kernels and copies, with the calls that asked for them.
 *
 *     the export, read-only -> one query over what tables and columns it has, in the order of time -> the trace
 *
 * Idea:     the export is SQLite, so SQLite sorts it. Its tables and columns differ from version to version (2021 to 2026) and with what was
 *           profiled: each is looked for by name, and one that is missing costs what it tells, with a note.
 * Ids:      globalTid and globalPid hold machine, process (bits 24 to 47) and thread (bits 0 to 23). A call and what it caused share a correlationId.
 * Hostile:  only real tables are read, every value is cast, texts are bounded, and no function that is not harmless can be called.
 */
#include "foreign_readers.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#define VALUE_BYTES_MAX (1 << 20) /* of a row of the export */
#define THREADS_MAX 65536u
#define DEVICES_MAX 4096
#define MEMORY_KINDS 8
#define THREAD_BITS 24

/* A number; NULL where something else was stored. */
#define NUMBER(value) "(CASE typeof(" value ") WHEN 'integer' THEN " value " END)"

/* In this order at one instant: what ended goes before what begins, and ranges without length end behind their beginning. */
enum row_kind { ROW_RANGE_END, ROW_RANGE, ROW_MARK, ROW_MEMORY, ROW_CALL, ROW_ACTIVITY, ROW_RANGE_EMPTY_END };

/* Columns of a row; what they mean depends on its kind. */
enum column {
	AT,
	KIND,
	TIE,
	PROCESS,
	THREAD,
	/* memory: address, bytes, kind of memory, whether it was given back, device, pool, stack, the pool's size and use */
	/* range: rowid. call: correlation, stack. activity: end, bytes, device, stream, correlation, kind, direction */
	A,
	B,
	C,
	D,
	E,
	F,
	G,
	H,
	I,
	NAME,
	MORE /* range: domain; memory: the variable's name */
};

struct lane {
	uint32_t process, thread;
};

struct reader {
	struct tm_foreign *f;
	struct tm_foreign_trace *t;
	sqlite3 *db;
	TM_ARRAY(struct lane) lanes;
	struct tm_id_map process_ids, lane_ids, heap_ids, block_heaps, chain_nodes, module_ids;
	int64_t first_ns, end_ns;
	sqlite3_stmt *chain, *lane_name;
	uint64_t odd_rows; /* without a time, or not a block */
	const char *missing[8];
	size_t missing_count;
};

static int failed(struct reader *r) {
	return tm_foreign_fail(r->f, "cannot read it: %s", sqlite3_errmsg(r->db));
}

static void miss(struct reader *r, const char *note) {
	if (r->missing_count < sizeof r->missing / sizeof *r->missing) r->missing[r->missing_count++] = note;
}

/* --- what the export has --- */

static int64_t number_of(sqlite3 *db, const char *sql, int64_t otherwise) {
	sqlite3_stmt *row = NULL;
	int64_t n = otherwise;
	if (sql && sqlite3_prepare_v2(db, sql, -1, &row, NULL) == SQLITE_OK && sqlite3_step(row) == SQLITE_ROW &&
	    sqlite3_column_type(row, 0) != SQLITE_NULL)
		n = sqlite3_column_int64(row, 0);
	sqlite3_finalize(row);
	return n;
}

/* A table that is stored, so neither a view nor something virtual. */
static bool has_table(sqlite3 *db, const char *table) {
	char *sql = sqlite3_mprintf("SELECT 1 FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = %Q COLLATE NOCASE",
				    table);
	bool has = number_of(db, sql, 0);
	sqlite3_free(sql);
	return has;
}

static bool has(const struct reader *r, const char *table, const char *column) {
	char *sql = sqlite3_mprintf("SELECT 1 FROM pragma_table_xinfo(%Q) WHERE name = %Q COLLATE NOCASE AND hidden = 0", table, column);
	bool there = has_table(r->db, table) && number_of(r->db, sql, 0);
	sqlite3_free(sql);
	return there;
}

/* Appends a column of `e`, NULL where the table has none. */
static void put_number(struct reader *r, sqlite3_str *sql, const char *table, const char *column) {
	if (has(r, table, column)) sqlite3_str_appendf(sql, ", " NUMBER("e.%s"), column, column);
	else sqlite3_str_appendall(sql, ", NULL");
}

/* The process of globalPid, or of globalTid. */
static void put_process_of(struct reader *r, sqlite3_str *sql, const char *table) {
	const char *column = has(r, table, "globalPid") ? "globalPid" : has(r, table, "globalTid") ? "globalTid" : NULL;
	if (column) sqlite3_str_appendf(sql, NUMBER("e.%s") " >> %d", column, column, THREAD_BITS);
	else sqlite3_str_appendall(sql, "NULL");
}

static void put_process(struct reader *r, sqlite3_str *sql, const char *table) {
	sqlite3_str_appendall(sql, ", ");
	put_process_of(r, sql, table);
}

#define TEXT_OF(id) "(SELECT CAST(s.value AS TEXT) FROM main.StringIds AS s WHERE s.id = " id ")"

static const char memory_table[] = "CUDA_GPU_MEMORY_USAGE_EVENTS", call_table[] = "CUPTI_ACTIVITY_KIND_RUNTIME",
		  range_table[] = "NVTX_EVENTS", chain_table[] = "CUDA_CALLCHAINS";

/* What ran on devices. Kernels have several names, the best one first. */
static const struct {
	const char *table, *names[3];
	enum tm_activity_kind kind;
} works[] = {
	{ "CUPTI_ACTIVITY_KIND_KERNEL", { "demangledName", "shortName", "mangledName" }, TM_ACTIVITY_KERNEL },
	{ "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", { "demangledName", "shortName", "name" }, TM_ACTIVITY_KERNEL },
	{ "CUPTI_ACTIVITY_KIND_MEMCPY", { NULL }, TM_ACTIVITY_MEMCPY },
	{ "CUPTI_ACTIVITY_KIND_MEMSET", { NULL }, TM_ACTIVITY_MEMSET },
};
#define WORKS (sizeof works / sizeof *works)

bool tm_foreign_is_nsight(const char *path) {
	sqlite3 *db = NULL;
	bool is = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK && has_table(db, "StringIds") &&
		  !has_table(db, "allocation_packed") &&
		  (has_table(db, memory_table) || has_table(db, call_table) || has_table(db, range_table) ||
		   has_table(db, "TARGET_INFO_SESSION_START_TIME") || has_table(db, works[0].table) || has_table(db, works[2].table));
	sqlite3_close(db);
	return is;
}

/* --- the calls that matter, and their stacks, as temporary tables with an index --- */

static int execute(struct reader *r, sqlite3_str *sql) {
	char *text = sqlite3_str_finish(sql);
	int rc = text && sqlite3_exec(r->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(r);
	sqlite3_free(text);
	return rc;
}

static void put_caused(struct reader *r, sqlite3_str *sql, const char *table) {
	if (has(r, table, "correlationId")) sqlite3_str_appendf(sql, " UNION SELECT correlationId FROM main.%s", table);
}

static int find_calls(struct reader *r) {
	sqlite3_str *sql = sqlite3_str_new(r->db);
	sqlite3_str_appendall(sql, "CREATE TEMP TABLE call(correlation, process, tid, at, name, chain, launches)");
	if (has(r, call_table, "correlationId") && has(r, call_table, "globalTid") && has(r, call_table, "end")) {
		sqlite3_str_appendall(sql, "; INSERT INTO temp.call SELECT " NUMBER("e.correlationId"));
		put_process(r, sql, call_table);
		sqlite3_str_appendf(sql, ", " NUMBER("e.globalTid") " & %d, " NUMBER("e.\"end\""), (1 << THREAD_BITS) - 1);
		put_number(r, sql, call_table, "nameId");
		put_number(r, sql, call_table, "callchainId");
		sqlite3_str_appendall(sql, ", e.correlationId IN (SELECT NULL");
		for (size_t i = 0; i < WORKS; i++) put_caused(r, sql, works[i].table);
		sqlite3_str_appendf(sql, ") FROM main.%s AS e WHERE e.correlationId > 0 AND e.correlationId IN (SELECT NULL", call_table);
		put_caused(r, sql, memory_table);
		for (size_t i = 0; i < WORKS; i++) put_caused(r, sql, works[i].table);
		sqlite3_str_appendall(sql, ")");
	} else {
		miss(r, "the export has no CUDA calls: blocks and work on devices have no threads, scopes and stacks");
	}
	sqlite3_str_appendall(sql, "; CREATE INDEX temp.call_by_number ON call(correlation, process)");
	return execute(r, sql);
}

static int find_chains(struct reader *r) {
	sqlite3_str *sql = sqlite3_str_new(r->db);
	sqlite3_str_appendall(sql, "CREATE TEMP TABLE chain(id, depth, function, module, address)");
	if (has(r, chain_table, "id") && has(r, chain_table, "stackDepth") && has(r, chain_table, "symbol")) {
		sqlite3_str_appendall(sql, "; INSERT INTO temp.chain SELECT " NUMBER("e.id"));
		put_number(r, sql, chain_table, "stackDepth");
		sqlite3_str_appendf(sql, ", %s" TEXT_OF("e.symbol") "%s",
				    has(r, chain_table, "unresolved") ? "CASE WHEN e.unresolved > 0 THEN NULL ELSE " : "",
				    has(r, chain_table, "unresolved") ? " END" : "");
		sqlite3_str_appendall(sql, has(r, chain_table, "module") ? ", " TEXT_OF("e.module") : ", NULL");
		put_number(r, sql, chain_table, "originalIP");
		sqlite3_str_appendf(sql, " FROM main.%s AS e WHERE e.id IN (SELECT chain FROM temp.call)", chain_table);
	} else {
		miss(r, "the export has no call stacks (nsys profile --cudabacktrace=all records them)");
	}
	sqlite3_str_appendall(sql, "; CREATE INDEX temp.chain_by_id ON chain(id, depth)");
	return execute(r, sql);
}

/* --- rows --- */

static void put_memory(struct reader *r, sqlite3_str *sql) {
	static const char *const needed[] = { "start", "address", "bytes", "memoryOperationType" };
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
		if (!has(r, memory_table, needed[i])) {
			miss(r, has_table(r->db, memory_table)
					? "the export's memory events lack a column that tells what they are"
					: "the export has no memory events (nsys profile --cuda-memory-usage=true records them)");
			return;
		}
	bool calls = has(r, memory_table, "correlationId"), named = has(r, "ENUM_CUDA_DEV_MEM_EVENT_OPER", "name");
	sqlite3_str_appendf(sql, " UNION ALL SELECT " NUMBER("e.start") ", %d, e.rowid", ROW_MEMORY);
	put_process(r, sql, memory_table);
	sqlite3_str_appendall(sql, ", k.tid, " NUMBER("e.address") ", " NUMBER("e.bytes"));
	put_number(r, sql, memory_table, "memKind");
	if (named)
		sqlite3_str_appendall(
			sql,
			", coalesce((SELECT o.name LIKE '%DEALLOC%' OR o.name LIKE '%FREE%' FROM main.ENUM_CUDA_DEV_MEM_EVENT_OPER AS o"
			" WHERE o.id = e.memoryOperationType), e.memoryOperationType = 1)");
	else sqlite3_str_appendall(sql, ", e.memoryOperationType = 1");
	put_number(r, sql, memory_table, "deviceId");
	put_number(r, sql, memory_table, "localMemoryPoolAddress");
	sqlite3_str_appendall(sql, ", k.chain");
	put_number(r, sql, memory_table, "localMemoryPoolSize");
	put_number(r, sql, memory_table, "localMemoryPoolUtilizedSize");
	sqlite3_str_appendall(sql, ", NULL, NULL");
	sqlite3_str_appendf(sql, " FROM main.%s AS e LEFT JOIN temp.call AS k ON k.rowid = ", memory_table);
	if (calls) {
		/* A number that several calls have: the one with a stack is the program's, the others are what it called. */
		sqlite3_str_appendall(
			sql, "(SELECT x.rowid FROM temp.call AS x WHERE x.correlation = " NUMBER("e.correlationId") " AND x.process = ");
		put_process_of(r, sql, memory_table);
		sqlite3_str_appendall(sql, " ORDER BY x.chain IS NULL OR x.chain <= 0, x.rowid LIMIT 1)");
	} else {
		sqlite3_str_appendall(sql, "NULL");
	}
}

static void put_work(struct reader *r, sqlite3_str *sql, size_t n) {
	const char *table = works[n].table, *name = NULL;
	if (!has(r, table, "start") || !has(r, table, "end")) return;
	for (size_t i = 0; i < 3 && !name && works[n].names[i]; i++)
		if (has(r, table, works[n].names[i])) name = works[n].names[i];
	sqlite3_str_appendf(sql, " UNION ALL SELECT " NUMBER("e.start") ", %d, e.rowid", ROW_ACTIVITY);
	put_process(r, sql, table);
	sqlite3_str_appendall(sql, ", NULL, " NUMBER("e.\"end\""));
	put_number(r, sql, table, "bytes");
	put_number(r, sql, table, "deviceId");
	put_number(r, sql, table, "streamId");
	put_number(r, sql, table, "correlationId");
	sqlite3_str_appendf(sql, ", %d", works[n].kind);
	put_number(r, sql, table, "copyKind");
	sqlite3_str_appendall(sql, ", NULL, NULL, ");
	if (name) sqlite3_str_appendf(sql, TEXT_OF("e.%s"), name);
	else sqlite3_str_appendall(sql, "NULL");
	sqlite3_str_appendf(sql, ", NULL FROM main.%s AS e", table);
}

/* Exports of before 2022 say '' where there is no text. */
#define TEXT "nullif(CAST(e.text AS TEXT), '')"
#define RANGE_NOTHING ", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"

/* Ranges are closed by their row's number. One without an end stays open. */
static void put_ranges(struct reader *r, sqlite3_str *sql) {
	if (!has(r, range_table, "start") || !has(r, range_table, "eventType") || !has(r, range_table, "globalTid")) {
		miss(r, "the export has no NVTX ranges: nothing is told by scope");
		return;
	}
	bool ends = has(r, range_table, "end"), text = has(r, range_table, "text"), id = has(r, range_table, "textId");
	const char *where = "e.globalTid IS NOT NULL AND e.start IS NOT NULL";
	char *name = sqlite3_mprintf("coalesce(%s, %s, '')", text ? TEXT : "NULL", id ? TEXT_OF("e.textId") : "NULL");
	char *who = sqlite3_mprintf(NUMBER("e.globalTid") " >> %d, " NUMBER("e.globalTid") " & %d, e.rowid", THREAD_BITS,
				    (1 << THREAD_BITS) - 1);
	sqlite3_str_appendf(sql,
			    " UNION ALL SELECT " NUMBER("e.start") ", %d, %s, %s" RANGE_NOTHING
								   ", %s, %s FROM main.%s AS e WHERE e.eventType IN (59, 60, 70, 71)"
								   " AND %s",
			    ROW_RANGE, ends ? "-coalesce(" NUMBER("e.\"end\"") ", 9e18)" : "e.rowid", who, name,
			    has(r, range_table, "domainId")
				    ? "(SELECT d.name FROM temp.domain AS d WHERE d.process = " NUMBER("e.globalTid") " >> 24 AND"
														      " d.id = e.domainId)"
				    : "NULL",
			    range_table, where);
	if (ends)
		sqlite3_str_appendf(
			sql,
			" UNION ALL SELECT " NUMBER("e.\"end\"") ", CASE WHEN e.\"end\" > e.start THEN %d ELSE %d END, -" NUMBER(
				"e.start") ", %s" RANGE_NOTHING
					   ", NULL, NULL FROM main.%s AS e WHERE e.eventType IN (59, 60, 70, 71) AND e.\"end\" >= e.start AND %s",
			ROW_RANGE_END, ROW_RANGE_EMPTY_END, who, range_table, where);
	sqlite3_str_appendf(sql,
			    " UNION ALL SELECT " NUMBER("e.start") ", %d, e.rowid, %s" RANGE_NOTHING
								   ", %s, NULL FROM main.%s AS e WHERE e.eventType = 34 AND %s",
			    ROW_MARK, who, name, range_table, where);
	sqlite3_free(name);
	sqlite3_free(who);
}

/* Domains are named by an event of their own. */
static int find_domains(struct reader *r) {
	sqlite3_str *sql = sqlite3_str_new(r->db);
	sqlite3_str_appendall(sql, "CREATE TEMP TABLE domain(process, id, name)");
	if (has(r, range_table, "domainId") && has(r, range_table, "eventType") && has(r, range_table, "globalTid"))
		sqlite3_str_appendf(sql,
				    "; INSERT INTO temp.domain SELECT " NUMBER("e.globalTid") " >> %d, e.domainId, coalesce(%s, %s)"
											      " FROM main.%s AS e WHERE e.eventType = 75",
				    THREAD_BITS, has(r, range_table, "text") ? TEXT : "NULL",
				    has(r, range_table, "textId") ? TEXT_OF("e.textId") : "NULL", range_table);
	sqlite3_str_appendall(sql, "; CREATE INDEX temp.domain_by_id ON domain(process, id)");
	return execute(r, sql);
}

static int find_thread_names(struct reader *r) {
	sqlite3_str *sql = sqlite3_str_new(r->db);
	sqlite3_str_appendall(sql, "CREATE TEMP TABLE lane(global, name)");
	if (has(r, "ThreadNames", "globalTid") && has(r, "ThreadNames", "nameId"))
		sqlite3_str_appendall(sql, "; INSERT INTO temp.lane SELECT " NUMBER("e.globalTid") ", " TEXT_OF(
						   "e.nameId") " FROM main.ThreadNames AS e");
	sqlite3_str_appendall(sql, "; CREATE INDEX temp.lane_by_id ON lane(global)");
	return execute(r, sql);
}

static char *all_rows(struct reader *r) {
	sqlite3_str *sql = sqlite3_str_new(r->db);
	sqlite3_str_appendf(
		sql,
		"SELECT * FROM (SELECT k.at AS at, %d, k.rowid, k.process, k.tid, k.correlation, k.chain, NULL, NULL, NULL, NULL, NULL, NULL, NULL, " TEXT_OF(
			"k.name") ", NULL FROM temp.call AS k WHERE k.launches",
		ROW_CALL);
	put_memory(r, sql);
	for (size_t i = 0; i < WORKS; i++) put_work(r, sql, i);
	put_ranges(r, sql);
	sqlite3_str_appendall(sql, ") ORDER BY 1, 2, 3");
	return sqlite3_str_finish(sql);
}

/* --- the trace --- */

static struct tm_text text_at(sqlite3_stmt *row, int column) {
	const char *text = (const char *)sqlite3_column_text(row, column);
	return (struct tm_text){ text ? text : "", text ? (size_t)sqlite3_column_bytes(row, column) : 0 };
}

static int64_t value_or(sqlite3_stmt *row, int column, int64_t otherwise) {
	return sqlite3_column_type(row, column) == SQLITE_NULL ? otherwise : sqlite3_column_int64(row, column);
}

/* Its name, from the table that newer exports have. */
static void name_process(struct reader *r, int64_t process, struct tm_process_start *start, sqlite3_stmt **named) {
	char *sql = has(r, "PROCESSES", "globalPid") && has(r, "PROCESSES", "name")
			    ? sqlite3_mprintf("SELECT CAST(name AS TEXT) FROM main.PROCESSES WHERE " NUMBER("globalPid") " >> %d = %lld",
					      THREAD_BITS, (long long)process)
			    : NULL;
	if (sql && sqlite3_prepare_v2(r->db, sql, -1, named, NULL) == SQLITE_OK && sqlite3_step(*named) == SQLITE_ROW)
		start->exe = text_at(*named, 0);
	sqlite3_free(sql);
}

static uint32_t process_of(struct reader *r, int64_t process) {
	uint64_t *id = tm_id_map_put(&r->process_ids, (uint64_t)process, 0);
	sqlite3_stmt *named = NULL;
	if (!id) return 1;
	struct tm_process_start start = {
		.pid = (uint64_t)process & ((1 << THREAD_BITS) - 1), .rank = -1, .local_rank = -1, .world_size = -1
	};
	if (!*id) {
		name_process(r, process, &start, &named);
		*id = tm_foreign_process(r->t, &start);
		sqlite3_finalize(named);
	}
	return (uint32_t)*id;
}

/* tid 0: not known. */
static const struct lane *lane_of(struct reader *r, int64_t process, int64_t tid) {
	uint64_t *id = tm_id_map_put(&r->lane_ids, (uint64_t)process, (uint64_t)tid);
	if (id && *id) return &r->lanes.items[*id - 1];
	struct lane *lane = id && r->lanes.count < THREADS_MAX ? tm_array_push(&r->lanes) : NULL;
	if (!lane) return NULL;
	*id = r->lanes.count;
	lane->process = process_of(r, process);
	sqlite3_bind_int64(r->lane_name, 1, (int64_t)((uint64_t)process << THREAD_BITS | (uint64_t)tid));
	struct tm_text name = tid > 0 && sqlite3_step(r->lane_name) == SQLITE_ROW ? text_at(r->lane_name, 0) : tm_text_of("");
	lane->thread = tm_foreign_thread(r->t, lane->process, tid > 0 ? (uint64_t)tid : 0, name);
	sqlite3_reset(r->lane_name);
	return lane;
}

/* CUPTI's kinds of memory. */
static const struct {
	const char *name, *kind;
	bool is_device;
} memories[MEMORY_KINDS] = {
	{ "cuda-pageable", "pinned", false },
	{ "cuda-host", "pinned", false },
	{ "cuda:", "device", true },
	{ "cuda:", "device", true },
	{ "cuda-managed", "managed", false },
	{ "cuda-static:", "device-static", true },
	{ "cuda-managed-static", "managed", false },
	{ "cuda-unknown:", "device-unknown", true },
};

static uint32_t heap_by_name(struct reader *r, uint32_t process, int64_t kind, int64_t device, int64_t pool) {
	const char *name = pool ? "cuda-pool:" : memories[kind].name, *type = pool ? "device-pool" : memories[kind].kind;
	bool is_device = pool || memories[kind].is_device;
	uint32_t parent = pool ? heap_by_name(r, process, 2, device, 0) : 0;
	uint64_t key = (uint64_t)(kind == 3 ? 2 : kind) | (uint64_t)(is_device ? device + 1 : 0) << 4 | (uint64_t)(pool != 0) << 32 |
		       (uint64_t)process << 33;
	uint64_t *id = tm_id_map_put(&r->heap_ids, key, 1);
	char text[48];
	if (!id) return 0;
	if (is_device) snprintf(text, sizeof text, "%s%lld", name, (long long)device);
	else snprintf(text, sizeof text, "%s", name);
	if (!*id) *id = tm_foreign_heap(r->t, process, tm_text_of(text), type, is_device ? device : -1, parent);
	return (uint32_t)*id;
}

static uint32_t heap_of(struct reader *r, uint32_t process, sqlite3_stmt *row) {
	int64_t kind = value_or(row, C, 2), device = value_or(row, E, 0), pool = value_or(row, F, 0);
	if (kind < 0 || kind >= MEMORY_KINDS) kind = MEMORY_KINDS - 1;
	if (device < 0 || device > DEVICES_MAX) device = 0;
	return heap_by_name(r, process, kind, device, pool);
}

static uint32_t module_of(struct reader *r, uint32_t process, struct tm_text path) {
	uint32_t string = tm_foreign_string(r->t, path);
	uint64_t *id = string ? tm_id_map_put(&r->module_ids, string, process) : NULL;
	if (!id) return 0;
	if (!*id) *id = tm_foreign_module(r->t, process, path);
	return (uint32_t)*id;
}

/* The node of a call's stack; 0: none. */
static uint32_t stack_of(struct reader *r, uint32_t process, int64_t chain) {
	uint64_t *known = chain > 0 ? tm_id_map_put(&r->chain_nodes, (uint64_t)chain, process) : NULL;
	uint32_t node = 0;
	if (!known || *known) return known ? (uint32_t)(*known - 1) : 0;
	sqlite3_bind_int64(r->chain, 1, chain);
	while (sqlite3_step(r->chain) == SQLITE_ROW) {
		struct tm_foreign_function function = { .function = text_at(r->chain, 0) };
		uint32_t module = module_of(r, process, text_at(r->chain, 1));
		uint64_t address = (uint64_t)sqlite3_column_int64(r->chain, 2) & (TM_ADDRESS_LIMIT - 1);
		node = tm_foreign_node(
			r->t, node,
			tm_foreign_frame(r->t, TM_FRAME_NATIVE, process, module, address, &function, function.function.size > 0));
	}
	sqlite3_reset(r->chain);
	*known = (uint64_t)node + 1;
	return node;
}

static void tell_memory(struct reader *r, const struct lane *lane, sqlite3_stmt *row, uint64_t ns) {
	uint64_t address = (uint64_t)sqlite3_column_int64(row, A) & (TM_ADDRESS_LIMIT - 1);
	int64_t bytes = sqlite3_column_int64(row, B);
	uint32_t heap = heap_of(r, lane->process, row);
	if (!address || bytes < 0) {
		r->odd_rows++;
		return;
	}
	uint64_t *block_heap = tm_id_map_put(&r->block_heaps, address, lane->process);
	if (!block_heap) return;
	if (sqlite3_column_int64(row, D)) {
		/* It goes back to where it came from, whatever its free says. */
		tm_foreign_release_of(r->t, lane->thread, TM_FOREIGN_FREE, ns, *block_heap ? (uint32_t)*block_heap : heap, address);
		*block_heap = heap;
		tm_id_map_remove(&r->block_heaps, address, lane->process);
	} else {
		*block_heap = heap;
		tm_foreign_allocation(r->t, lane->thread, TM_FOREIGN_ALLOC, ns, heap, address, (uint64_t)bytes,
				      stack_of(r, lane->process, sqlite3_column_int64(row, G)));
	}
	if (sqlite3_column_int64(row, F)) {
		struct tm_pool_state state = { heap, ns, value_or(row, I, -1), value_or(row, H, -1), -1, -1 };
		if (state.reserved > 0) tm_foreign_pool_state(r->t, &state);
	}
}

static void tell_work(struct reader *r, uint32_t process, sqlite3_stmt *row, uint64_t ns) {
	int64_t end = value_or(row, A, 0), bytes = value_or(row, B, -1), device = value_or(row, C, -1), stream = value_or(row, D, -1);
	struct tm_activity a = { .start_ns = ns,
				 .end_ns = end >= r->first_ns ? (uint64_t)(end - r->first_ns) : 0,
				 .name = tm_foreign_string(r->t, text_at(row, NAME)),
				 .size_bytes = bytes < 0 ? TM_ACTIVITY_UNKNOWN : (uint64_t)bytes,
				 .stream = stream < 0 ? TM_ACTIVITY_UNKNOWN : (uint64_t)stream,
				 .device = device < 0 || device > DEVICES_MAX ? -1 : (int32_t)device,
				 .correlation = (uint64_t)value_or(row, E, 0) & UINT32_MAX,
				 .kind = (uint8_t)sqlite3_column_int(row, F) };
	if (a.kind == TM_ACTIVITY_MEMCPY) a.direction = (uint8_t)tm_direction_of_copy(value_or(row, G, 0));
	tm_foreign_activity(r->t, process, &a);
}

static void tell_range(struct reader *r, const struct lane *lane, sqlite3_stmt *row, uint64_t ns) {
	struct tm_text domain = text_at(row, MORE);
	char category[256];
	snprintf(category, sizeof category, domain.size ? "nvtx:%.*s" : "nvtx", (int)(domain.size < 200 ? domain.size : 200), domain.data);
	struct tm_event e = { .time_ns = ns,
			      .op = TM_OP_SCOPE_RANGE,
			      .addr = (uint64_t)sqlite3_column_int64(row, A) & (TM_ADDRESS_LIMIT - 1) };
	e.text = tm_foreign_string(r->t, text_at(row, NAME));
	if (!e.text) e.text = tm_foreign_string(r->t, tm_text_of("(no name)"));
	e.heap = tm_foreign_string(r->t, tm_text_of(category));
	tm_foreign_event(r->t, lane->thread, &e);
}

static int tell_row(struct reader *r, sqlite3_stmt *row) {
	int64_t at = sqlite3_column_int64(row, AT), process = sqlite3_column_int64(row, PROCESS);
	if (sqlite3_column_type(row, AT) != SQLITE_INTEGER || at < r->first_ns || at - r->first_ns > (int64_t)1 << 58) {
		r->odd_rows++;
		return 0;
	}
	uint64_t ns = (uint64_t)(at - r->first_ns);
	enum row_kind kind = (enum row_kind)sqlite3_column_int(row, KIND);
	if (at > r->end_ns) r->end_ns = at;
	if (kind == ROW_ACTIVITY) return tell_work(r, process_of(r, process), row, ns), 0;
	const struct lane *lane = lane_of(r, process, value_or(row, THREAD, 0));
	if (!lane) return tm_foreign_fail(r->f, "out of memory, or more than %u threads", THREADS_MAX);
	struct tm_event e = { .time_ns = ns };
	switch (kind) {
	case ROW_MEMORY: tell_memory(r, lane, row, ns); return 0;
	case ROW_RANGE: tell_range(r, lane, row, ns); return 0;
	case ROW_CALL:
		e.op = TM_OP_LAUNCH;
		e.addr = (uint64_t)sqlite3_column_int64(row, A) & UINT32_MAX;
		e.old = stack_of(r, lane->process, sqlite3_column_int64(row, B));
		break;
	case ROW_MARK: e.op = TM_OP_MARK; break;
	default: e.op = TM_OP_SCOPE_END; e.addr = (uint64_t)sqlite3_column_int64(row, A) & (TM_ADDRESS_LIMIT - 1);
	}
	if (kind == ROW_CALL || kind == ROW_MARK) e.text = tm_foreign_string(r->t, text_at(row, NAME));
	tm_foreign_event(r->t, lane->thread, &e);
	return 0;
}

/* --- around the events --- */

static void tell_start(struct reader *r) {
	int64_t utc = has(r, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
			      ? number_of(r->db, "SELECT " NUMBER("utcEpochNs") " FROM main.TARGET_INFO_SESSION_START_TIME", 0)
			      : 0;
	if (utc > 0 && utc < INT64_MAX - r->first_ns) tm_foreign_start(r->t, (uint64_t)(utc + r->first_ns));
}

/* Devices, as each process numbers them. */
static void tell_devices(struct reader *r) {
	sqlite3_stmt *row = NULL;
	if (!has(r, "TARGET_INFO_GPU", "id") || !has(r, "TARGET_INFO_GPU", "name") || !has(r, "TARGET_INFO_CUDA_DEVICE", "gpuId") ||
	    !has(r, "TARGET_INFO_CUDA_DEVICE", "cudaId") || !has(r, "TARGET_INFO_CUDA_DEVICE", "pid"))
		return;
	sqlite3_str *sql = sqlite3_str_new(r->db);
	sqlite3_str_appendall(sql, "SELECT " NUMBER("e.pid") ", " NUMBER("e.cudaId") ", CAST(g.name AS TEXT)");
	sqlite3_str_appendall(sql, has(r, "TARGET_INFO_GPU", "totalMemory") ? ", " NUMBER("g.totalMemory") : ", NULL");
	sqlite3_str_appendall(sql,
			      " FROM main.TARGET_INFO_CUDA_DEVICE AS e JOIN main.TARGET_INFO_GPU AS g ON g.id = e.gpuId ORDER BY 1, 2");
	char *text = sqlite3_str_finish(sql);
	if (text && sqlite3_prepare_v2(r->db, text, -1, &row, NULL) == SQLITE_OK)
		while (sqlite3_step(row) == SQLITE_ROW)
			for (size_t i = 0; i <= r->process_ids.mask && r->process_ids.slots; i++) {
				const struct tm_id_slot *slot = &r->process_ids.slots[i];
				int64_t number = sqlite3_column_int64(row, 1);
				if (!slot->value || (slot->a & ((1 << THREAD_BITS) - 1)) != (uint64_t)sqlite3_column_int64(row, 0) ||
				    number < 0 || number > DEVICES_MAX)
					continue;
				struct tm_device device = { .process = slot->value,
							    .device = (uint64_t)number,
							    .total_bytes = value_or(row, 3, -1),
							    .name = text_at(row, 2) };
				tm_foreign_device(r->t, &device);
			}
	sqlite3_finalize(row);
	sqlite3_free(text);
}

/* What is read by name, beside what put_memory() and the like cannot do without and say so. `a|b`: one is enough. */
static const struct {
	const char *table, *columns[9];
	bool is_expected; /* also where there are no such events */
} read_by_name[] = {
	{ memory_table,
	  { "globalPid|globalTid", "memKind", "deviceId", "correlationId", "localMemoryPoolAddress", "localMemoryPoolSize", "localMemoryPoolUtilizedSize" },
	  false },
	{ call_table, { "nameId", "callchainId" }, false },
	{ chain_table, { "module", "originalIP" }, false },
	{ range_table, { "end", "text|textId", "domainId" }, false },
	{ "CUPTI_ACTIVITY_KIND_KERNEL",
	  { "start", "end", "globalPid|globalTid", "deviceId", "streamId", "correlationId", "demangledName|shortName|mangledName" },
	  false },
	{ "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
	  { "start", "end", "globalPid|globalTid", "deviceId", "streamId", "correlationId", "demangledName|shortName|name" },
	  false },
	{ "CUPTI_ACTIVITY_KIND_MEMCPY", { "start", "end", "globalPid|globalTid", "deviceId", "streamId", "correlationId", "bytes", "copyKind" }, false },
	{ "CUPTI_ACTIVITY_KIND_MEMSET", { "start", "end", "globalPid|globalTid", "deviceId", "streamId", "correlationId", "bytes" }, false },
	{ "ThreadNames", { "globalTid", "nameId" }, true },
	{ "TARGET_INFO_GPU", { "id", "name", "totalMemory" }, true },
	{ "TARGET_INFO_CUDA_DEVICE", { "gpuId", "cudaId", "pid" }, true },
};

static bool has_one_of(const struct reader *r, const char *table, const char *columns) {
	while (*columns) {
		int n = (int)strcspn(columns, "|");
		char *column = sqlite3_mprintf("%.*s", n, columns);
		bool there = column && has(r, table, column);
		sqlite3_free(column);
		if (there) return true;
		columns += n + (columns[n] == '|');
	}
	return false;
}

static void tell_missing(struct reader *r) {
	for (size_t i = 0; i < sizeof read_by_name / sizeof *read_by_name; i++) {
		const char *table = read_by_name[i].table, *const *columns = read_by_name[i].columns;
		bool there = has_table(r->db, table);
		sqlite3_str *note = sqlite3_str_new(r->db);
		if (!there && read_by_name[i].is_expected) sqlite3_str_appendf(note, "the export has no table %s: what it tells is not known", table);
		for (; there && *columns; columns++)
			if (!has_one_of(r, table, *columns)) sqlite3_str_appendf(note, "%s%s", sqlite3_str_length(note) ? ", " : "", *columns);
		char *text = sqlite3_str_finish(note);
		char *whole = text && there ? sqlite3_mprintf("the export's table %s lacks columns, and what they tell is not known: %s%s", table, text,
							      strstr(text, "memKind") ? " (all memory counts as the device's)" : "")
					    : NULL;
		if (whole || text) tm_foreign_note(r->t, 1, tm_text_of(whole ? whole : text));
		sqlite3_free(whole);
		sqlite3_free(text);
	}
}

static void tell_notes(struct reader *r) {
	tell_missing(r);
	for (size_t i = 0; i < r->missing_count; i++) tm_foreign_note(r->t, 1, tm_text_of(r->missing[i]));
	tm_foreign_note(
		r->t, 1,
		tm_text_of(
			"which function gave a block is not told, nor what blocks of before the profile are: their frees match nothing"));
	if (r->odd_rows) tm_foreign_loss(r->t, 1, "odd-row", r->odd_rows, 0, "rows of the export without a time, an address or a size");
}

static int tell(struct reader *r) {
	sqlite3_stmt *row = NULL;
	char *sql = all_rows(r), *first = sql ? sqlite3_mprintf("SELECT min(at) FROM (%s) WHERE at >= 0", sql) : NULL;
	int rc = 0, step = SQLITE_DONE;
	r->first_ns = r->end_ns = number_of(r->db, first, 0);
	sqlite3_free(first);
	if (!sql || sqlite3_prepare_v2(r->db, sql, -1, &row, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(r->db, "SELECT function, module, address FROM temp.chain WHERE id = ? ORDER BY depth DESC LIMIT 1024", -1,
			       &r->chain, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(r->db, "SELECT name FROM temp.lane WHERE global = ?", -1, &r->lane_name, NULL) != SQLITE_OK)
		rc = failed(r);
	sqlite3_free(sql);
	if (!rc) tell_start(r);
	while (!rc && !r->t->failed && (step = sqlite3_step(row)) == SQLITE_ROW) rc = tell_row(r, row);
	if (!rc && step != SQLITE_DONE && !r->t->failed) rc = failed(r);
	sqlite3_finalize(row);
	sqlite3_finalize(r->chain);
	sqlite3_finalize(r->lane_name);
	if (rc || r->t->failed) return -1;
	if (!r->t->processes)
		return tm_foreign_fail(r->f, "it is an export of Nsight Systems, but holds no memory events, ranges or work on devices");
	tell_devices(r);
	tell_notes(r);
	return tm_foreign_trace_finish(r->t, (uint64_t)(r->end_ns - r->first_ns));
}

static int open_export(struct reader *r, const char *path) {
	if (sqlite3_open_v2(path, &r->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
		return tm_foreign_fail(r->f, "%s", r->db ? sqlite3_errmsg(r->db) : "out of memory");
	sqlite3_db_config(r->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(r->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(r->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
	sqlite3_db_config(r->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
	sqlite3_limit(r->db, SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX);
	sqlite3_exec(r->db, "PRAGMA cell_size_check=ON; PRAGMA cache_size=-16384", NULL, NULL, NULL);
	return 0;
}

int tm_foreign_read_nsight(struct tm_foreign *f, struct tm_foreign_trace *t, const char *path) {
	struct reader r = { .f = f, .t = t };
	snprintf(f->format, sizeof f->format, "Nsight Systems SQLite");
	int rc = open_export(&r, path);
	if (!rc) rc = find_calls(&r);
	if (!rc) rc = find_chains(&r);
	if (!rc) rc = find_domains(&r);
	if (!rc) rc = find_thread_names(&r);
	if (!rc) rc = tell(&r);
	sqlite3_close(r.db);
	tm_array_release(&r.lanes);
	tm_id_map_release(&r.process_ids);
	tm_id_map_release(&r.lane_ids);
	tm_id_map_release(&r.heap_ids);
	tm_id_map_release(&r.block_heaps);
	tm_id_map_release(&r.chain_nodes);
	tm_id_map_release(&r.module_ids);
	return rc;
}
