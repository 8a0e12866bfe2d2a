/* process.h - what the guest knows about its process as a whole: how it begins, leaves, and what runs inside it.
 *
 * Flow:     hook.c (attach) -> process_info.c, modules.c;  process_hooks.c, exec_hooks.c -> emit.c -> ring
 * Owns:     the pointers to the Python interpreter's finalizing check, and to its flag; our library's own path.
 * Threads:  any. Nothing here takes a lock of ours; errno is never changed.
 */
#ifndef TIDEMARK_GUEST_PROCESS_H
#define TIDEMARK_GUEST_PROCESS_H

#include "guest.h"

/* --- leaving (process_hooks.c) --- */

/* Emits EXIT_BEGIN once a process, nothing in a vfork child. Between enter and leave of a hook. */
void tm_exit_begin_on(struct tm_thread *t);
/* The thread whose number is the process's begins to end: libc leaves when the last one has. Between enter and leave, with ours begun. */
void tm_exit_expect_last_thread(void);
/* The interpreter begins to finalize: stops the walks over its frames, and emits EXIT_BEGIN where it is the program. */
void tm_exit_begin_of_python(struct tm_thread *t);

/* Asks the check below, if there is one, and does that. */
void tm_python_ask(struct tm_thread *t);
void tm_modules_look_at_python(struct tm_thread *t); /* modules.c: the interpreter was listed, and was not ready */

/* The thread ends: what exec_hooks.c keeps for it goes. */
void tm_exec_hooks_end_thread(void);

/* --- Python's finalizing flag (modules.c finds the function among the loaded modules, without the loader's help) --- */
typedef int tm_python_check(void); /* tm_guest.python_finalizing; NULL: there is no Python in this process, or it may be unloaded at this moment */

static inline bool tm_python_is_to_be_asked(void) {
	return *atomic_load_explicit(&tm_guest.python_flag, memory_order_relaxed) != 0;
}

/* Once an event, between enter and leave, before the event is stamped. The interpreter sets its flag without telling anybody, so we look. */
static inline void tm_python_poll(struct tm_thread *t) {
	if (TM_UNLIKELY(tm_python_is_to_be_asked())) tm_python_ask(t);
}

extern const uintptr_t tm_python_no_flag TM_HIDDEN; /* tm_guest.python_flag where there is no such check */

/* --- around each look at the loader's list of modules, dl_iterate_phdr (inherited_locks.c) --- */
/* False: another thread is in there, or forks, for longer than we wait: do without, as one may not wait for it. */
bool tm_loader_enter(void);
void tm_loader_leave(void);
bool tm_loader_is_held(void); /* the last one who came waited in vain */

/* --- in a fork's child, before anything asks for the loaded modules or a stack (inherited_locks.c) --- */
void tm_inherited_locks_free(bool alone); /* alone: it has just begun, and has one thread for certain */

/* --- another malloc in front of ours (process_info.c) --- */
const char *tm_other_allocator(void); /* the object whose malloc the program calls; NULL: ours is called. Looks once, with the loader's lock. */

/* Notes the libraries that call another malloc than ours, at the process's exit (bypassed.c). Takes the loader's lock. */
void tm_note_bypassed(struct tm_thread *t);
/* The same of one library, before it is closed; handle: as dlopen gives it, not NULL. */
void tm_note_bypassed_by(struct tm_thread *t, const void *handle);

/* Notes that the CUDA driver was used, and did not come for us, at the process's exit (cuda_inject.c). Takes the loader's lock. */
void tm_cuda_note_unasked(struct tm_thread *t);

/* --- our library's own file (process_info.c) --- */
const char *tm_own_path(void); /* absolute; "" if it could not be found. Takes the loader's lock at its first call. */
/* The file mapped at address, from /proc/self/maps; false: none, or /proc is hidden. */
bool tm_mapped_path(uintptr_t address, char *to, size_t size);
/* Of our constructor's arguments: they spare a look into /proc, which makes the kernel a directory entry and a file for each process. */
void tm_process_arguments(int count, char **arguments, char **environment);
/* The main program's file, to which the loader gives no name; "": not known. */
const char *tm_program_path(void);

/* --- preloaded without a collector (attach_self.c) --- */
/* Starts a collector for this process and puts TM_SESSION_ENV into the environment. False: the process runs unrecorded. */
bool tm_attach_self(char session_path[256]);
/* Returns false; where TIDEMARK_VERBOSE is set it has said why on standard error. System calls only. */
bool tm_give_up(const char *why);

#endif
