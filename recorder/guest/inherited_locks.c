/* inherited_locks.c - frees a lock that a fork's child inherited from a thread that does not exist in it.
 *
 * Flow:     our constructor finds the loader's lock; fork's child (process_hooks.c, modules.c) -> tm_inherited_locks_free()
 * The trap: dl_iterate_phdr, which we call, takes a lock of the loader. A thread (in dlopen, say) may hold it while
 *           another one forks; in the child nobody will ever release it, and the next look at the modules there would wait for ever. The C
 *           library resets its other loader lock in the child, this one only in later versions. We ask for it more often than the
 *           program would, so we must not leave that to luck.
 * How:      nothing exports the lock, but it can be recognised: of all words that look like a mutex in the loader's data, it is the one
 *           that is ours while a dl_iterate_phdr callback of ours runs, and nobody's before and after. If not exactly one is, nothing is
 *           ever touched.
 */
#include "process.h"
#include "raw.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>

#define CANDIDATES_MAX 8u

static pthread_mutex_t *loader_lock; /* NULL: not found */

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
	if (matching == 1) loader_lock = found;
}

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
	if (loader_lock && loader_lock->__data.__lock != 0 && (alone || owner_is_gone(loader_lock))) reset(loader_lock);
}
