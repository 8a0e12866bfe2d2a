/* thread_name.c - see thread_name.h.
 *
 * Idea:     prctl(2) says it in no time, but a filter of system calls from before the program may kill for that, while a program
 *           can hardly do without opening files. /proc has the name in a file that the kernel makes for each thread anew, and drops
 *           with it: that takes half as long as the thread's whole start and end. So the first thread that ends asks there whether
 *           there is such a filter, and then the next ones know: that is sandbox_hooks.c's.
 */
#include "thread_name.h"
#include "raw.h"
#include "sandbox.h"

#include <string.h>
#include <sys/prctl.h>

static size_t by_prctl(char name[TM_THREAD_NAME_BYTES]) {
	return tm_syscall(SYS_prctl, PR_GET_NAME, (long)name, 0, 0, 0, 0) == 0 ? strnlen(name, TM_THREAD_NAME_BYTES) : 0;
}

static size_t by_file(char name[TM_THREAD_NAME_BYTES]) {
	size_t n = tm_raw_read_whole("/proc/thread-self/comm", name, TM_THREAD_NAME_BYTES);

	return n > 0 ? n - (name[n - 1] == '\n') : 0;
}

size_t tm_thread_name_at_end(char name[TM_THREAD_NAME_BYTES]) {
	tm_sandbox_is_free(true);
	return tm_thread_name_at_exit(name);
}

size_t tm_thread_name_at_exit(char name[TM_THREAD_NAME_BYTES]) {
	return tm_sandbox_is_free(false) ? by_prctl(name) : by_file(name);
}
