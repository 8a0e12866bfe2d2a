/* modules.c - which file lies where in the program's address space, now and before.
 *
 * Flow:     hook.c at start, emit.c at a frame outside of all known modules, dlclose -> tm_modules_refresh() -> MODULE, UNLOAD records
 * Idea:     the loader counts what it adds and removes. While the counts stand, nothing is to be done; when they moved, the whole list is
 *           taken again and compared with what was emitted. dlopen needs no hook for that (and a hook of it would change whose RUNPATH
 *           applies). While none was removed, those that were listed are what they were: only new ones are looked into, as programs may load thousands.
 *
 *     dl_iterate_phdr -> struct list (fresh)  --compare--  struct list `emitted`  -> records
 *                                                          struct table `known`   -> tm_modules_know(), lock-free
 *
 * Threads:  one thread refreshes at a time; another that wants to goes on without. In the loader's callback nothing of ours is held and
 *           only memory of ours is written. Readers of `known` take a version before and after (odd: in change). A table that became too
 *           small is left where it is, since a reader may be in it; each is twice as large as the last.
 * Limits:   libraries in a dlmopen namespace of their own are not listed by the loader; libc's own dlclose (of an NSS module, say) is seen
 *           with the next unknown frame only.
 */
#include "elf_symbols.h"
#include "fork_gate.h"
#include "process.h"
#include "python.h"
#include "raw.h"
#include "shared_rules.h"
#include "torch.h"
#include "unwind_rule.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define BUILD_ID_MAX 64u
#define LIST_FIRST_BYTES 65536u
#define TABLE_FIRST_BYTES 4096u

struct module {
	uintptr_t bias, low, high;
	uint64_t identity;        /* of path and build-id */
	uint64_t key;             /* of `low` (shared_rules.h) */
	uint32_t path, path_size; /* in the list's texts: build-id, then path */
	uint32_t build_id, build_id_size;
	uintptr_t frames_header; /* .eh_frame_hdr, 0: none */
};

/* Modules from the front, their texts from the back, in one mapping; offsets, since it may move. */
struct list {
	char *memory;
	size_t size_bytes, count, text;
};

/* For readers: what is emitted, by rising address. */
struct table {
	uint32_t capacity;
	_Atomic uint32_t count;
	struct range {
		_Atomic uintptr_t low, high, frames_header;
		_Atomic uint64_t key; /* of `low` (shared_rules.h) */
	} ranges[];
};

static struct list emitted;
static struct table *_Atomic known;
union tm_versions tm_versions;
_Atomic uint64_t tm_modules_pages[TM_MODULES_PAGES];
static _Atomic bool refreshing;
static bool inherited;                          /* `emitted` is right, but by another process: we are a fork's child */
static unsigned long long adds_seen, subs_seen; /* the loader's counts at the last refresh */
static size_t count_at_first;                   /* of the loader's list, at the first: what has come since was loaded by dlopen, and follows */
static bool joined_late;                        /* what was there at the first may have been loaded by dlopen */

static struct tm_python_module python_seen; /* of the modules in `emitted`; its symbols are of Python only where has_python */
static bool has_python;
static uintptr_t python_check;   /* where the last look found it; 0: nowhere */
static unsigned pending_looks;   /* at an interpreter that the loader has not made ready */
static _Atomic uint32_t closing; /* dlclose calls under way */

static struct module *modules_of(const struct list *list) {
	return (struct module *)list->memory;
}

/* --- lists --- */

static bool list_make(struct list *list) {
	*list = (struct list){ .memory = tm_raw_map(LIST_FIRST_BYTES), .size_bytes = LIST_FIRST_BYTES, .text = LIST_FIRST_BYTES };
	return list->memory != NULL;
}

static void list_release(struct list *list) {
	if (list->memory) tm_raw_unmap(list->memory, list->size_bytes);
	*list = (struct list){ 0 };
}

/* Room for one more module and `text` bytes of its texts. */
static bool list_reserve(struct list *list, size_t text) {
	size_t texts = list->size_bytes - list->text;
	char *bigger;

	if ((list->count + 1) * sizeof(struct module) + text <= list->text) return true;
	bigger = tm_raw_remap(list->memory, list->size_bytes, list->size_bytes * 2);
	if (!bigger) return false;
	list->memory = bigger;
	memcpy(bigger + list->size_bytes * 2 - texts, bigger + list->text, texts);
	for (size_t i = 0; i < list->count; i++) {
		modules_of(list)[i].path += (uint32_t)list->size_bytes;
		modules_of(list)[i].build_id += (uint32_t)list->size_bytes;
	}
	list->text += list->size_bytes;
	list->size_bytes *= 2;
	return true;
}

static uint32_t list_put_text(struct list *list, const char *text, size_t n) {
	list->text -= n;
	memcpy(list->memory + list->text, text, n);
	return (uint32_t)list->text;
}

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t n) {
	for (size_t i = 0; i < n; i++) hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001b3ull;
	return hash;
}

/* The sizes of its texts are in m. */
static bool list_add(struct list *list, struct module m, const char *path, const char *build_id) {
	if (!list_reserve(list, m.path_size + m.build_id_size)) return false;
	m.path = list_put_text(list, path, m.path_size);
	m.build_id = list_put_text(list, build_id, m.build_id_size); /* right in front of the path */
	modules_of(list)[list->count++] = m;
	return true;
}

/* By address: Shell's sort, since the loader's order is often the reverse of it, and libc's qsort may call malloc. Those before `from` are sorted already, and
 * the others, then, few: they are put in their places one by one. */
static void list_sort(struct list *list, size_t from) {
	struct module *m = modules_of(list);

	for (size_t gap = from ? 1 : list->count / 2; gap > 0; gap /= 2)
		for (size_t i = from ? from : gap; i < list->count; i++) {
			struct module moved = m[i];
			size_t j = i;

			for (; j >= gap && m[j - gap].low > moved.low; j -= gap) m[j] = m[j - gap];
			m[j] = moved;
		}
}

/* The module with that bias that begins there, among the first `count`, which are sorted; NULL: none. */
static const struct module *list_find(const struct list *list, size_t count, uintptr_t begin, uintptr_t bias) {
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct module *m = &modules_of(list)[middle];

		if (m->low == begin) return m->bias == bias ? m : NULL;
		if (m->low > begin) high = middle;
		else low = middle + 1;
	}
	return NULL;
}

/* Is the very same module in the sorted list? Those that are wanted come by rising address; *at: how far the list was gone through for them. */
static bool list_has(const struct list *list, size_t *at, const struct module *wanted) {
	const struct module *m = modules_of(list);

	while (*at < list->count && m[*at].low < wanted->low) ++*at;
	return *at < list->count && m[*at].low == wanted->low && m[*at].bias == wanted->bias && m[*at].identity == wanted->identity;
}

/* --- one module, seen from inside the loader's callback --- */

static bool extent_of(const struct dl_phdr_info *info, struct module *m) {
	m->bias = info->dlpi_addr;
	m->low = UINTPTR_MAX;
	m->high = 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t low = m->bias + p->p_vaddr, high = low + p->p_memsz;

		if (p->p_type == PT_GNU_EH_FRAME) m->frames_header = low;
		if (p->p_type != PT_LOAD) continue;
		if (low < m->low) m->low = low;
		if (high > m->high) m->high = high;
	}
	m->low &= ~(uintptr_t)(TM_SHM_PAGE - 1);
	m->high = (m->high + TM_SHM_PAGE - 1) & ~(uintptr_t)(TM_SHM_PAGE - 1);
	return m->low < m->high;
}

#define NOTE_BYTES(n) (((size_t)(n) + 3) & ~(size_t)3)

/* Notes lie at multiples of four. A segment whose headers say eight has one for the processor's properties, which is of that size, in front of the others: mold
 * puts all of them into one. */
static const char *build_id_in(const char *notes, size_t n, uint32_t *size) {
	while (n >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)notes;
		size_t content = sizeof *note + NOTE_BYTES(note->n_namesz), whole = content + NOTE_BYTES(note->n_descsz);

		if (content + note->n_descsz > n) return NULL;
		if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(note + 1, "GNU", 4) == 0) {
			*size = note->n_descsz < BUILD_ID_MAX ? note->n_descsz : BUILD_ID_MAX;
			return notes + content;
		}
		if (whole >= n) return NULL;
		notes += whole;
		n -= whole;
	}
	return NULL;
}

static const char *build_id_of(const struct dl_phdr_info *info, const struct module *m, uint32_t *size) {
	*size = 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t at = m->bias + p->p_vaddr;
		const char *found;

		if (p->p_type != PT_NOTE || at < m->low || at + p->p_memsz > m->high) continue;
		found = build_id_in((const char *)at, p->p_memsz, size);
		if (found) return found;
	}
	return "";
}

/* --- taking the loader's list --- */

struct visit {
	struct list list;
	size_t listed; /* modules at its begin that were listed before: none was removed since */
	size_t visited;
	bool begun, unchanged, incomplete;
	unsigned long long adds, subs;
	uintptr_t vdso;
	struct tm_python_module python;
	bool has_python;
};

/* Which file it is and as of when; 0: nobody can tell. A build-id that was chosen by hand may be that of all programs and versions of a project, and the loader
 * names no program. */
static uint64_t file_of(const char *path) {
	struct stat s;
	uint64_t words[6];

	if (*path == '[') return 1; /* the kernel's */
	if (tm_is_sandboxed() || tm_syscall(SYS_newfstatat, AT_FDCWD, (long)(*path ? path : "/proc/self/exe"), (long)&s, 0, 0, 0) != 0)
		return 0;
	words[0] = s.st_dev;
	words[1] = s.st_ino;
	words[2] = (uint64_t)s.st_size;
	words[3] = (uint64_t)s.st_mtim.tv_sec;
	words[4] = (uint64_t)s.st_ctim.tv_sec;
	words[5] = (uint64_t)s.st_mtim.tv_nsec << 32 | (uint64_t)s.st_ctim.tv_nsec;
	return hash_bytes(0xcbf29ce484222325ull, (const char *)words, sizeof words) | 1;
}

/* One that was listed keeps what it had: where all numbers are given away it takes long to see that there is none. */
static uint64_t shared_key(const struct visit *v, const struct module *m, const char *path, const char *build_id) {
	const struct module *before = v->listed ? NULL : list_find(&emitted, emitted.count, m->low, m->bias);
	uint64_t file;

	if (before && before->identity == m->identity && before->high == m->high && before->frames_header == m->frames_header)
		return before->key;
	if (!m->frames_header || !m->build_id_size || !(file = file_of(path))) return 0;
	return tm_shared_key(build_id, m->build_id_size, hash_bytes(m->identity, (const char *)&file, sizeof file), m->high - m->low,
			     m->frames_header - m->low);
}

static bool add_new(struct visit *v, const struct dl_phdr_info *info, struct module m) {
	const char *build_id = build_id_of(info, &m, &m.build_id_size), *path = info->dlpi_name ? info->dlpi_name : "";

	if (v->vdso >= m.low && v->vdso < m.high) path = "[vdso]";
	else if (!v->has_python) v->has_python = tm_python_look_in(info, &v->python);
	m.path_size = (uint32_t)strnlen(path, TM_PATH_MAX);
	m.identity = hash_bytes(hash_bytes(0xcbf29ce484222325ull, path, m.path_size), build_id, m.build_id_size);
	m.key = shared_key(v, &m, path, build_id);
	return list_add(&v->list, m, path, build_id);
}

/* The list that was emitted is taken over where it only has to become longer; a new one is made where modules may be gone from it. */
static void begin_list(struct visit *v) {
	if (emitted.count == 0 || v->subs != subs_seen) {
		v->incomplete = !list_make(&v->list);
		return;
	}
	v->list = emitted;
	v->listed = emitted.count;
	v->python = python_seen;
	v->has_python = has_python;
}

static int visit_module(struct dl_phdr_info *info, size_t size, void *context) {
	struct visit *v = context;
	struct module m = { 0 };
	(void)size;

	v->visited++;
	if (!v->begun) {
		v->begun = true;
		v->adds = info->dlpi_adds;
		v->subs = info->dlpi_subs;
		v->unchanged = v->adds == adds_seen && v->subs == subs_seen && !python_seen.pending;
		if (v->unchanged) return 1;
		begin_list(v);
		if (v->incomplete) return 1;
	}
	if (v->python.pending && info->dlpi_addr == v->python.pending) v->has_python = tm_python_look_in(info, &v->python);
	if (list_find(&v->list, v->listed, info->dlpi_addr, info->dlpi_addr)) return 0; /* most files' first byte lies at 0 */
	if (!extent_of(info, &m) || list_find(&v->list, v->listed, m.low, m.bias)) return 0;
	v->incomplete = !add_new(v, info, m);
	return v->incomplete;
}

/* --- records --- */

static void emit_unload(struct tm_thread *t, const struct module *m) {
	uint64_t words[2] = { m->low, m->high - m->low };

	tm_emit_control(t, TM_CTL_UNLOAD, 0, 0, words, 2, NULL, 0);
}

/* The loader's name for a module, made one that still means the same file tomorrow: the main program has none, others may be relative. */
static size_t full_path(char to[TM_PATH_MAX], const struct list *list, const struct module *m) {
	const char *path = m->path_size ? list->memory + m->path : tm_program_path();
	size_t n = m->path_size ? m->path_size : strlen(path);

	if (n >= TM_PATH_MAX) n = TM_PATH_MAX - 1;
	memcpy(to, path, n);
	to[n] = 0;
	if (to[0] != '/' && to[0] != '[' && tm_mapped_path(m->low, to, TM_PATH_MAX)) n = strlen(to);
	return n;
}

static void emit_module(struct tm_thread *t, const struct list *list, const struct module *m) {
	static TM_ROOMY char text[BUILD_ID_MAX + TM_PATH_MAX]; /* one thread refreshes at a time, maybe on a small alternate stack */
	uint64_t words[3] = { m->bias, m->low, m->high - m->low };
	size_t n;

	memcpy(text, list->memory + m->build_id, m->build_id_size);
	n = full_path(text + m->build_id_size, list, m);
	tm_emit_control(t, TM_CTL_MODULE, 0, m->build_id_size, words, 3, text, m->build_id_size + n);
}

/* The collector is told that there are records of modules before it can see one: events of other threads are put in order with them. */
static uint32_t begin_records(struct tm_thread *t) {
	uint32_t begun = atomic_load_explicit(&t->ring->modules_begun, memory_order_relaxed) + 1;

	atomic_store_explicit(&t->ring->modules_begun, begun, memory_order_relaxed); /* `head` is released after it */
	return begun;
}

static void end_records(struct tm_thread *t, uint32_t begun) {
	atomic_store_explicit(&t->ring->modules_ended, begun, memory_order_release);
}

static void emit_new(struct tm_thread *t, const struct list *now, size_t from) {
	uint32_t begun = begin_records(t);

	for (size_t i = from; i < now->count; i++) emit_module(t, now, &modules_of(now)[i]);
	end_records(t, begun);
}

/* What `now` has and `before` has not, and the other way round. True: modules are gone. */
static bool emit_changes(struct tm_thread *t, const struct list *before, const struct list *now) {
	uint32_t begun = begin_records(t);
	size_t of_now = 0, of_before = 0;
	bool are_gone = false;

	for (size_t i = 0; i < before->count; i++) {
		if (list_has(now, &of_now, &modules_of(before)[i])) continue;
		emit_unload(t, &modules_of(before)[i]);
		are_gone = true;
	}
	for (size_t i = 0; i < now->count; i++)
		if (!list_has(before, &of_before, &modules_of(now)[i])) emit_module(t, now, &modules_of(now)[i]);
	end_records(t, begun);
	return are_gone;
}

/* --- what readers see --- */

static struct table *table_for(size_t count) {
	struct table *table = atomic_load(&known);
	size_t bytes = TABLE_FIRST_BYTES;

	if (table && count <= table->capacity) return table;
	while ((bytes - sizeof *table) / sizeof(struct range) < count) bytes *= 2;
	table = tm_raw_map(bytes);
	if (table) table->capacity = (uint32_t)((bytes - sizeof *table) / sizeof(struct range));
	return table;
}

static bool publish(const struct list *list) {
	struct table *table = table_for(list->count);

	if (!table) return false;
	atomic_fetch_add(&tm_versions.modules, 1);
	atomic_thread_fence(memory_order_release);
	for (size_t i = 0; i < list->count; i++) {
		atomic_store_explicit(&table->ranges[i].low, modules_of(list)[i].low, memory_order_relaxed);
		atomic_store_explicit(&table->ranges[i].high, modules_of(list)[i].high, memory_order_relaxed);
		atomic_store_explicit(&table->ranges[i].frames_header, modules_of(list)[i].frames_header, memory_order_relaxed);
		atomic_store_explicit(&table->ranges[i].key, modules_of(list)[i].key, memory_order_relaxed);
	}
	atomic_store_explicit(&table->count, (uint32_t)list->count, memory_order_relaxed);
	atomic_store_explicit(&known, table, memory_order_release);
	atomic_fetch_add(&tm_versions.modules, 1);
	return true;
}

static const struct range *search(const struct table *table, uintptr_t pc) {
	uint32_t low = 0, high = atomic_load_explicit(&table->count, memory_order_relaxed);

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (atomic_load_explicit(&table->ranges[middle].low, memory_order_relaxed) > pc) high = middle;
		else if (atomic_load_explicit(&table->ranges[middle].high, memory_order_relaxed) <= pc) low = middle + 1;
		else return &table->ranges[middle];
	}
	return NULL;
}

bool tm_modules_look(uintptr_t pc) {
	uint32_t before = atomic_load_explicit(&tm_versions.modules, memory_order_acquire);
	const struct table *table = atomic_load_explicit(&known, memory_order_acquire);
	bool found;

	if (!table || (before & 1)) return false;
	found = search(table, pc) != NULL;
	atomic_thread_fence(memory_order_acquire);
	if (!found || atomic_load_explicit(&tm_versions.modules, memory_order_relaxed) != before) return false;
	atomic_store_explicit(tm_modules_page(pc), tm_modules_page_key(pc, before), memory_order_relaxed);
	return true;
}

bool tm_modules_find(uintptr_t pc, uintptr_t *low, uintptr_t *high, uintptr_t *frames_header) {
	uint32_t before = atomic_load_explicit(&tm_versions.modules, memory_order_acquire);
	const struct table *table = atomic_load_explicit(&known, memory_order_acquire);
	const struct range *found = table && !(before & 1) ? search(table, pc) : NULL;

	if (!found) return false;
	*low = atomic_load_explicit(&found->low, memory_order_relaxed);
	*high = atomic_load_explicit(&found->high, memory_order_relaxed);
	*frames_header = atomic_load_explicit(&found->frames_header, memory_order_relaxed);
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&tm_versions.modules, memory_order_relaxed) == before;
}

uint64_t tm_modules_key(uintptr_t pc) {
	uint32_t before = atomic_load_explicit(&tm_versions.modules, memory_order_acquire);
	const struct table *table = atomic_load_explicit(&known, memory_order_acquire);
	const struct range *found = table && !(before & 1) ? search(table, pc) : NULL;

	if (!found) return 0;
	uint64_t key = atomic_load_explicit(&found->key, memory_order_relaxed), place = pc - atomic_load_explicit(&found->low, memory_order_relaxed);
	atomic_thread_fence(memory_order_acquire);
	return key && atomic_load_explicit(&tm_versions.modules, memory_order_relaxed) == before ? key + place : 0;
}

/* --- refresh --- */

const uintptr_t tm_python_no_flag = 0;
static const uintptr_t python_flag_unknown = 1;

/* Its library may be the one that goes. */
static void leave_python_check(void) {
	atomic_store(&tm_guest.python_flag, &tm_python_no_flag);
	atomic_store(&tm_guest.python_stacks, false);
	atomic_store(&tm_guest.python_finalizing, NULL);
}

#define PENDING_LOOKS 100000u

/* It is looked at again with each event, until it is ready, or seems never to be. */
void tm_modules_look_at_python(struct tm_thread *t) {
	if (!python_seen.pending || tm_is_sandboxed()) return;
	if (++pending_looks > PENDING_LOOKS) python_seen.pending = 0;
	tm_modules_refresh(t);
}

/* Python's check as the last look found it comes into use, but for the time of a dlclose. */
static void use_python_check(void) {
	if (python_seen.pending) {
		leave_python_check();
		atomic_store(&tm_guest.python_flag, &python_flag_unknown);
		return;
	}
	if (!python_check || atomic_load(&closing)) {
		leave_python_check();
		return;
	}
	const uintptr_t *flag = (const uintptr_t *)python_seen.flag;
	atomic_store(&tm_guest.python_finalizing, (tm_python_check *)python_check);
	atomic_store(&tm_guest.python_stacks, tm_guest.shm->python || tm_guest.shm->python_heap);
	atomic_store(&tm_guest.python_flag, flag ? flag : &python_flag_unknown);
	if (atomic_load(&closing)) leave_python_check(); /* a dlclose has begun meanwhile */
}

/* There is no memory for a longer list: the next look tries again. */
static void forget_new(struct visit *v) {
	if (!v->listed) {
		list_release(&v->list);
		return;
	}
	emitted = v->list; /* it may have moved */
	emitted.count = v->listed;
}

static void refresh(struct tm_thread *t) {
	struct visit v = { .vdso = getauxval(AT_SYSINFO_EHDR) };

	if (inherited) {
		inherited = false;
		emit_new(t, &emitted, 0);
		return;
	}
	if (!tm_loader_enter()) {
		/* Stacks that are known by now do not stand: their modules are asked for again. */
		if (tm_loader_is_held()) atomic_fetch_add(&tm_versions.modules, 2);
		return;
	}
	tm_ours_begin();
	dl_iterate_phdr(visit_module, &v);
	tm_ours_end();
	tm_loader_leave();
	if (!v.begun || v.unchanged) return;
	if (v.incomplete) {
		forget_new(&v);
		return;
	}
	if (!count_at_first && !joined_late) count_at_first = v.visited;
	if (v.listed) emit_new(t, &v.list, v.listed);
	list_sort(&v.list, v.listed);
	bool are_gone = false;
	if (!v.listed) {
		are_gone = emit_changes(t, &emitted, &v.list);
		list_release(&emitted);
	}
	emitted = v.list;
	if (publish(&emitted)) {
		adds_seen = v.adds;
		subs_seen = v.subs;
	}
	if (are_gone) { /* by a dlclose that was not ours, or libc's own: what is known of their code may be applied to what came in their place */
		tm_rules_close_begin();
		tm_rules_close_end();
	}
	python_seen = v.python;
	has_python = v.has_python;
	python_check = v.python.check;
	if (v.has_python) tm_python_found(t, &v.python);
}

size_t tm_modules_at_first(void) {
	return count_at_first;
}

void tm_modules_joined_late(void) {
	joined_late = true;
}

#define TURNS_MAX 4u

static _Atomic uint32_t asked, answered; /* numbers of those who wanted a refresh; a later look answers all before it */

/* Who comes while another thread refreshes leaves it to that one, which may have asked the loader before: it asks again. */
static void refresh_in_turn(struct tm_thread *t) {
	atomic_fetch_add(&asked, 1);
	for (unsigned turn = 0; turn < TURNS_MAX; turn++) {
		if (atomic_exchange(&refreshing, true)) return;
		uint32_t answers = atomic_load(&asked);

		refresh(t);
		use_python_check();
		atomic_store(&answered, answers);
		atomic_store(&refreshing, false);
		if (atomic_load(&asked) == answers) return;
	}
}

/* The loader's lock is held on the way: a handler that leaped out would leave it so. */
TM_REALIGN void tm_modules_refresh(struct tm_thread *t) {
	struct tm_raw_signals signals = tm_raw_hold_signals();

	refresh_in_turn(t);
	tm_raw_let_signals(signals);
}

void tm_modules_forget(void) {
	struct table *table = atomic_load(&known);

	tm_inherited_locks_free(false);
	tm_rules_forked();
	inherited = emitted.count > 0 && !atomic_load(&refreshing);
	if (inherited) /* what the parent knew is what we have: no need to ask the loader */
		return;
	emitted = (struct list){ 0 }; /* a thread that is not in this process was about to change it */
	adds_seen = subs_seen = 0;
	atomic_store(&tm_versions.modules, (atomic_load(&tm_versions.modules) | 1) + 1);
	if (table) atomic_store(&table->count, 0);
	atomic_store(&refreshing, false);
}

#define YIELDS 1000u
#define WAITS_MAX 6000u /* the yields, and then half a second: the other thread has lost its processor */

static void wait_briefly(unsigned waits) {
	struct timespec time = { 0, 100000 };

	if (waits < YIELDS) tm_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	else tm_syscall(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
}

/* Before and after a close it matters that the list is new when this returns: a library that is gone before it was listed has no name. Another thread's look is
 * waited for, unless it takes very long. */
static void refresh_now(const void *to_close) {
	struct tm_thread *t = tm_hook_enter();
	uint32_t now;

	if (!t) return;
	if (to_close) tm_note_bypassed_by(t, to_close);
	now = atomic_load(&asked) + 1;
	tm_modules_refresh(t);
	for (unsigned i = 0; i < WAITS_MAX && (int32_t)(atomic_load(&answered) - now) < 0 && !tm_is_sandboxed(); i++) {
		if (atomic_load(&refreshing)) wait_briefly(i);
		else tm_modules_refresh(t);
	}
	tm_hook_leave(t);
}

/* While a dlclose runs Python's check is out of use: its library may be the one that goes, with frees on the way. */
TM_EXPORT_ALIGNED int dlclose(void *handle) {
	static int (*_Atomic real)(void *);
	int (*call)(void *) = atomic_load(&real);
	bool inside;
	int result;

	if (!call) {
		*(void **)&call = tm_next_symbol("dlclose");
		atomic_store(&real, call);
	}
	refresh_now(handle);
	atomic_fetch_add(&closing, 1);
	leave_python_check();
	tm_rules_close_begin();
	inside = tm_gate_enter_closing();
	result = call(handle);
	if (inside) tm_gate_leave_closing();
	tm_rules_close_end();
	atomic_fetch_sub(&closing, 1);
	refresh_now(NULL);
	tm_torch_forget();
	return result;
}
