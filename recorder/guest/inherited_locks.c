/* inherited_locks.c - the lock of the loader's list of modules: taken without waiting for ever, and freed in a fork's child that inherited it from a thread
 * which does not exist there.
 *
 * Flow:     our constructor finds the loader's lock; whoever looks at the list (modules.c, bypassed.c, ...) -> tm_loader_enter() -> dl_iterate_phdr();
 *           fork's child (process_hooks.c, modules.c) -> tm_inherited_locks_free()
 * Waiting:  a callback of the program's, in which its thread holds the lock, may wait for whatever another thread holds while that one calls malloc. So the
 *           lock is waited for a short while only, and not at all where that was in vain, until it can be had again. It may be taken twice by a thread.
 * The trap: dl_iterate_phdr, which we call, takes a lock of the loader. A thread (in dlopen, say) may hold it while
 *           another one forks; in the child nobody will ever release it, and the next look at the modules there would wait for ever. The C
 *           library resets its other loader lock in the child, this one only in later versions. We ask for it more often than the
 *           program would, so we must not leave that to luck.
 * How:      nothing exports the lock, but it can be recognised: of all words that look like a mutex in the loader's data, it is the one
 *           that is ours while a dl_iterate_phdr callback of ours runs, and nobody's before and after. If not exactly one is, nothing is
 *           ever touched.
 */
#include "fork_gate.h"
#include "process.h"
#include "raw.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define CANDIDATES_MAX 8u
#define YIELDS 100u
#define WAITS_MAX 200u /* the yields, and then some 10 ms: the other thread has lost its processor */

static pthread_mutex_t *_Atomic loader_lock; /* NULL: not found */
static int (*try_lock)(pthread_mutex_t *);   /* libc's, also where the program has some of its own */
static int (*unlock)(pthread_mutex_t *);
static _Atomic bool waited_in_vain;

struct search {
	char *low, *high; /* the loader's data */
	pthread_mutex_t *candidates[CANDIDATES_MAX];
	unsigned count;
};

static bool held_once_by(const pthread_mutex_t *m, int tid) {
	return m->__data.__lock != 0 && m->__data.__count == 1 && m->__data.__owner == tid &&
	       m->__data.__kind == PTHREAD_MUTEX_RECURSIVE_NP;
}

static bool nobodys(const pthread_mutex_t *m) {
	return m->__data.__lock == 0 && m->__data.__count == 0 && m->__data.__owner == 0;
}

static int look_while_held(struct dl_phdr_info *info, size_t size, void *context) {
	struct search *s = context;
	int tid = (int)tm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
	(void)info;
	(void)size;

	for (char *at = s->low; at + sizeof(pthread_mutex_t) <= s->high; at += sizeof(long)) {
		pthread_mutex_t *m = (pthread_mutex_t *)at;

		if (held_once_by(m, tid) && s->count < CANDIDATES_MAX) s->candidates[s->count++] = m;
	}
	return 1;
}

static bool find_loader_data(struct search *s) {
	const ElfW(Sym) *symbol = NULL;
	Dl_info info;
	void *data = dlsym(RTLD_DEFAULT, "_rtld_global");

	if (!data || !dladdr1(data, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol || info.dli_saddr != data) return false;
	s->low = data;
	s->high = s->low + symbol->st_size;
	return true;
}

__attribute__((constructor)) static void find_lock(void) {
	struct search s = { 0 };
	pthread_mutex_t *found = NULL;
	unsigned matching = 0;

	tm_ours_begin();
	if (find_loader_data(&s)) dl_iterate_phdr(look_while_held, &s);
	tm_ours_end();
	for (unsigned i = 0; i < s.count; i++) {
		if (!nobodys(s.candidates[i])) continue;
		found = s.candidates[i];
		matching++;
	}
	*(void **)&try_lock = tm_next_symbol("pthread_mutex_trylock");
	*(void **)&unlock = tm_next_symbol("pthread_mutex_unlock");
	if (matching == 1 && try_lock && unlock) atomic_store(&loader_lock, found);
}

/* --- taking it --- */

static void wait_briefly(unsigned waits) {
	struct timespec time = { 0, 50000 };

	if (waits < YIELDS) tm_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	else tm_syscall(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
}

static bool is_got(pthread_mutex_t *m) {
	for (unsigned i = 0; try_lock(m) != 0; i++) {
		if (i == WAITS_MAX || tm_is_sandboxed() || atomic_load(&waited_in_vain)) return false;
		wait_briefly(i);
	}
	return true;
}

bool tm_loader_enter(void) {
	pthread_mutex_t *m = atomic_load(&loader_lock);

	if (!tm_gate_enter()) return false;
	if (!m) return true;
	bool got = is_got(m);
	if (atomic_load(&waited_in_vain) == got) atomic_store(&waited_in_vain, !got);
	if (!got) tm_gate_leave();
	return got;
}

void tm_loader_leave(void) {
	pthread_mutex_t *m = atomic_load(&loader_lock);

	if (m) unlock(m);
	tm_gate_leave();
}

bool tm_loader_is_held(void) {
	return atomic_load(&waited_in_vain);
}

/* --- freeing it --- */

static bool owner_is_gone(const pthread_mutex_t *m) {
	int owner = m->__data.__owner;

	return owner > 0 && tm_syscall(SYS_tgkill, tm_raw_getpid(), owner, 0, 0, 0, 0) == -ESRCH;
}

static void reset(pthread_mutex_t *m) {
	m->__data.__count = 0;
	m->__data.__owner = 0;
	m->__data.__nusers = 0;
	__atomic_store_n(&m->__data.__lock, 0, __ATOMIC_RELEASE);
}

void tm_inherited_locks_free(bool alone) {
	pthread_mutex_t *m = atomic_load(&loader_lock);

	if (m && m->__data.__lock != 0 && (alone || owner_is_gone(m))) reset(m);
}
