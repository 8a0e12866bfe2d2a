/* tidemark.h - tell tidemark what your program is doing. C99 and C++, header only: there is nothing to link.
 *
 *     #include "tidemark.h"
 *
 *     load_input();
 *     tidemark_mark("input loaded");
 *
 * While the program is recorded (`tidemark record ./program`) each call leaves an event in the trace. While it is not, a call
 * is a load and a branch. The same binary serves both ways, also when it is linked statically (then it is never recorded).
 *
 * Threads:  every function may be called from any thread at any time.
 * Failure:  none is reported and none reaches the program; errno is never changed.
 * Names:    strings that end with a zero byte, in UTF-8 if you want to read them; copied during the call, so they may be temporary. What is
 *           longer than 4,096 bytes is cut there. A call with a null pointer does nothing.
 *
 * Functions
 *
 *     tidemark_mark("name")    An instant of the calling thread, with a name. It is shown in time lines, and `--from=mark:NAME`
 *                              and `--to=mark:NAME` select what lies between two of them. The recorder reads the process' resident
 *                              memory soon after it, from outside, while the program runs on: the reading has its own, later time.
 */
#ifndef TIDEMARK_H
#define TIDEMARK_H

#ifdef __cplusplus
extern "C" {
#endif

/* What the recorder's library defines. Programs call the functions further down. */
extern void tidemark_api_mark_v1(const char *name) __attribute__((weak));

/* Sets `call` to the recorder's function, or to null without a recorder. A linker that makes a position-dependent program settles a weak
 * function's plain address as null for good; through the global offset table the loader decides, whatever the program was linked as. */
#if defined(__x86_64__) && defined(__LP64__)
#define TIDEMARK_API_FIND(call, function) __asm__(".weak " #function "\n\tmovq " #function "@GOTPCREL(%%rip), %0" : "=r"(call))
#else
#define TIDEMARK_API_FIND(call, function) ((call) = function)
#endif

static inline void tidemark_mark(const char *name) {
	void (*call)(const char *);

	TIDEMARK_API_FIND(call, tidemark_api_mark_v1);
	if (call) call(name);
}

#ifdef __cplusplus
}
#endif

#endif
