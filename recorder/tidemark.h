/* tidemark.h - tell tidemark what your program is doing. C99 and C++, header only: there is nothing to link.
 *
 *     #include "tidemark.h"
 *
 *     void train(void) {
 *             TIDEMARK_SCOPE("train");
 *             for (int i = 0; i < 100; i++) {
 *                     tidemark_step(i);
 *                     ...
 *             }
 *     }
 *
 * While the program is recorded (`tidemark record ./program`) each call leaves an event in the trace. While it is not, a call
 * is a load and a branch. The same binary serves both ways, also when it is linked statically (then it is never recorded).
 *
 * Threads:  every function may be called from any thread at any time, also from several at once.
 * Failure:  none reaches the program, and errno is never changed; only tidemark_stats() says whether it could answer.
 * Names:    strings that end with a zero byte, in UTF-8 if you want to read them; copied during the call, so they may be temporary. What is
 *           longer than 4,096 bytes (a heap's name: 240) is cut there. A call with a null pointer for a name does nothing.
 *
 * Scopes: whose memory is it? An allocation belongs to the innermost scope that is open on its thread; `tidemark scopes` shows what each allocated,
 * freed, kept, and its peak.
 *
 *     TIDEMARK_SCOPE("name");            A scope from here to the end of the enclosing block, whatever way it is left: return, break, goto, in C++
 *                                        an exception (the scope is marked so), longjmp (seen at the next block that opens where the one that
 *                                        was left cannot be around it: in the function jumped to, or called by it; else when an outer scope ends).
 *                                        In a C++ coroutine, and on a stack that is not the thread's own (other coroutines', an alternate one of
 *                                        a handler), it is a range, as below: it stays open while that is suspended, longjmp does not close it.
 *                                        One in a block and line: it is named by __LINE__, so a macro of yours that opens two there does not compile.
 *     tidemark_scope_push("name")        Opens a scope on this thread, until the tidemark_scope_pop() that belongs to it. Scopes that a function left
 *     tidemark_scope_pop()               open close with the block around them, with their thread, or with the process. A pop too many does nothing.
 *     id = tidemark_range_begin("name")  A scope of this thread that tidemark_range_end(id) closes, from any thread and in any order.
 *     tidemark_range_end(id)
 *
 *     In a fork's child no scope is open: what it closes that its parent opened is counted as an end without a scope, and so is a pop too many. The exec
 *     of another program closes all, as the end of the process does.
 *
 * Steps, marks, snapshots
 *
 *     tidemark_step(n)                   The process begins step n (of a training loop, of a solver); the step before ends. Steps are compared with
 *                                        each other, whatever threads do their work.
 *     tidemark_mark("name")              An instant of the calling thread, with a name. It is shown in time lines, and `--from=mark:NAME` and
 *                                        `--to=mark:NAME` select what lies between two of them. The recorder reads the process' resident memory soon
 *                                        after it, from outside, while the program runs on: the reading has its own, later time.
 *     tidemark_snapshot("label")         Keeps what is live now, by stack, under this label: `tidemark snapshot DB --at snapshot:LABEL`.
 *     tidemark_baseline()                The statistics of tidemark_stats() begin anew here, and what is live is kept: `tidemark snapshot DB --at
 *                                        exit --against baseline`, `--from=baseline`. Where there are several, that is the last one.
 *
 * Recording on and off, for the whole process
 *
 *     tidemark_stop()  tidemark_start()  While stopped, allocations are not recorded; frees of blocks that were recorded are, so that nothing seems to
 *                                        leak. Everything else goes on. A fork's child is as its parent was.
 *
 * Pools: an allocator of your own, whose blocks you want to see apart
 *
 *     tidemark_heap pool = tidemark_heap_create("pool", "malloc");
 *     tidemark_heap_alloc(pool, p, size);      after a block was handed out, with the caller's stack
 *     tidemark_heap_free(pool, p);             before it is handed out again
 *
 *     The second argument says where the pool's memory comes from: a heap's name ("malloc", "mmap") or a pool. NULL: from nowhere that is recorded, and
 *     then it is added to the process' totals; so it is where there is no heap of that name (yet), and a note says so. A pool of the same name is the same
 *     pool: the first declaration counts. "malloc", "mmap" and "mmap-file" are none (NULL). Up to 512. While recording is stopped blocks that are handed
 *     out are not recorded. A block that is handed out where one is live replaces that; a free of what is not live does nothing; `tidemark info`
 *     counts both.
 *
 * How much is live, asked by the program itself
 *
 *     struct tidemark_stats s;
 *     if (tidemark_stats("malloc", &s) == 0) printf("%llu\n", (unsigned long long)s.live_bytes);
 *
 *     The heap is a pool or the name of any heap ("malloc", "mmap", "mmap-file", "torch.cpu"). The recorder answers, about a millisecond later, with the
 *     figures as of the call: everything that the calling thread did before it counts, and what other threads did, up to the stamp of the
 *     call. They are those of this process since it began (a fork's child: since the fork) or since tidemark_baseline(). `exact` is 0 where they are an
 *     estimate: "malloc" with --sample, and all after events were lost or recording was stopped for a while.
 *     tidemark_reset_peak("malloc") lets peak_since_reset_bytes begin anew, at what is live.
 */
#ifndef TIDEMARK_H
#define TIDEMARK_H

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
#include <exception>
#endif

struct tidemark_stats { /* of one heap */
	uint64_t live_bytes, live_count;
	uint64_t peak_bytes;             /* most live bytes since the process, or the baseline, began */
	uint64_t peak_since_reset_bytes; /* since tidemark_reset_peak() */
	uint64_t allocations, frees;     /* counts; a realloc is one of each */
	int exact;                       /* 0: an estimate */
};

enum {
	TIDEMARK_OK = 0,
	TIDEMARK_NOT_RECORDED = -1, /* there is no recorder, or none any more */
	TIDEMARK_NO_SUCH_HEAP = -2, /* no heap of that name has been seen in this process */
	/* Within two seconds; at once where the recorder has shown no life since it gave none, and in a signal handler that came in the middle of a
	 * call which is recorded. */
	TIDEMARK_NO_ANSWER = -3
};

/* A pool, or the name of a heap. NULL stands for a pool that could not be had: calls with it do nothing. */
typedef const char *tidemark_heap;

#ifdef __cplusplus
extern "C" {
#endif

/* What the recorder's library defines. Programs call the functions further down. */
#ifndef TIDEMARK_API_LINKAGE
#define TIDEMARK_API_LINKAGE __attribute__((weak))
#endif
extern void tidemark_api_mark_v1(const char *name) TIDEMARK_API_LINKAGE;
extern void tidemark_api_snapshot_v1(const char *label) TIDEMARK_API_LINKAGE;
extern void tidemark_api_baseline_v1(void) TIDEMARK_API_LINKAGE;
extern void tidemark_api_step_v1(int64_t n) TIDEMARK_API_LINKAGE;
extern void tidemark_api_start_v1(void) TIDEMARK_API_LINKAGE;
extern void tidemark_api_stop_v1(void) TIDEMARK_API_LINKAGE;
extern void tidemark_api_scope_push_v1(const char *name) TIDEMARK_API_LINKAGE;
extern void tidemark_api_scope_pop_v1(void) TIDEMARK_API_LINKAGE;
/* `block`: the address of the variable that ends with the block; `frame`: the frame address of its function. */
extern void tidemark_api_block_begin_v1(const void *block, const char *name, const void *frame) TIDEMARK_API_LINKAGE;
extern void tidemark_api_block_end_v1(const void *block, int exception) TIDEMARK_API_LINKAGE;
/* A category of NULL is "user". The id is never 0. */
extern uint64_t tidemark_api_range_begin_v1(const char *category, const char *name) TIDEMARK_API_LINKAGE;
extern void tidemark_api_range_end_v1(uint64_t id, int exception) TIDEMARK_API_LINKAGE;
extern tidemark_heap tidemark_api_heap_create_v1(const char *name, tidemark_heap parent) TIDEMARK_API_LINKAGE;
extern void tidemark_api_heap_alloc_v1(tidemark_heap heap, const void *block, size_t size) TIDEMARK_API_LINKAGE;
extern void tidemark_api_heap_free_v1(tidemark_heap heap, const void *block) TIDEMARK_API_LINKAGE;
/* `size`: of the struct that the program knows; a later version may be longer, and fills in no more than that. */
extern int tidemark_api_stats_v1(tidemark_heap heap, struct tidemark_stats *stats, size_t size) TIDEMARK_API_LINKAGE;
extern void tidemark_api_reset_peak_v1(tidemark_heap heap) TIDEMARK_API_LINKAGE;

/* Always inlined, also without optimisation: the program itself calls into the recorder, and the innermost frame of a stack is the program's. */
#define TIDEMARK_API_INLINE static __inline__ __attribute__((always_inline))

#if defined(__cplusplus) && __cplusplus >= 201103L
#define TIDEMARK_API_NULL nullptr
#else
#define TIDEMARK_API_NULL NULL
#endif

/* Sets `call` to the recorder's function, or to null without a recorder. A linker that makes a position-dependent program settles a weak
 * function's plain address as null for good; through the global offset table the loader decides, whatever the program was linked as. */
#if defined(__x86_64__) && defined(__LP64__)
#define TIDEMARK_API_FIND(call, function) \
	__asm__(".weak " #function "\n\t{movq " #function "@GOTPCREL(%%rip), %0|mov %0, QWORD PTR " #function "@GOTPCREL[rip]}" : "=r"(call))
#else
#define TIDEMARK_API_FIND(call, function) ((call) = function)
#endif

/* One function: find the recorder's, and call it if there is one. */
#define TIDEMARK_API_CALL(function, parameters, arguments) \
	do { \
		void(*tidemark_call) parameters; \
		TIDEMARK_API_FIND(tidemark_call, function); \
		if (tidemark_call) tidemark_call arguments; \
	} while (0)

TIDEMARK_API_INLINE void tidemark_mark(const char *name) {
	TIDEMARK_API_CALL(tidemark_api_mark_v1, (const char *), (name));
}

TIDEMARK_API_INLINE void tidemark_snapshot(const char *label) {
	TIDEMARK_API_CALL(tidemark_api_snapshot_v1, (const char *), (label));
}

TIDEMARK_API_INLINE void tidemark_baseline(void) {
	TIDEMARK_API_CALL(tidemark_api_baseline_v1, (void), ());
}

TIDEMARK_API_INLINE void tidemark_step(int64_t n) {
	TIDEMARK_API_CALL(tidemark_api_step_v1, (int64_t), (n));
}

TIDEMARK_API_INLINE void tidemark_start(void) {
	TIDEMARK_API_CALL(tidemark_api_start_v1, (void), ());
}

TIDEMARK_API_INLINE void tidemark_stop(void) {
	TIDEMARK_API_CALL(tidemark_api_stop_v1, (void), ());
}

TIDEMARK_API_INLINE void tidemark_scope_push(const char *name) {
	TIDEMARK_API_CALL(tidemark_api_scope_push_v1, (const char *), (name));
}

TIDEMARK_API_INLINE void tidemark_scope_pop(void) {
	TIDEMARK_API_CALL(tidemark_api_scope_pop_v1, (void), ());
}

TIDEMARK_API_INLINE uint64_t tidemark_range_begin(const char *name) {
	uint64_t (*call)(const char *, const char *);

	TIDEMARK_API_FIND(call, tidemark_api_range_begin_v1);
	return call ? call(TIDEMARK_API_NULL, name) : 0;
}

TIDEMARK_API_INLINE void tidemark_range_end(uint64_t id) {
	TIDEMARK_API_CALL(tidemark_api_range_end_v1, (uint64_t, int), (id, 0));
}

TIDEMARK_API_INLINE tidemark_heap tidemark_heap_create(const char *name, tidemark_heap parent) {
	tidemark_heap (*call)(const char *, tidemark_heap);

	TIDEMARK_API_FIND(call, tidemark_api_heap_create_v1);
	return call ? call(name, parent) : TIDEMARK_API_NULL;
}

TIDEMARK_API_INLINE void tidemark_heap_alloc(tidemark_heap heap, const void *block, size_t size) {
	TIDEMARK_API_CALL(tidemark_api_heap_alloc_v1, (tidemark_heap, const void *, size_t), (heap, block, size));
}

TIDEMARK_API_INLINE void tidemark_heap_free(tidemark_heap heap, const void *block) {
	TIDEMARK_API_CALL(tidemark_api_heap_free_v1, (tidemark_heap, const void *), (heap, block));
}

/* TIDEMARK_OK, or why not (then all figures are 0). As in stat(2), function and struct have one name, which some compilers remark upon. */
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
TIDEMARK_API_INLINE int tidemark_stats(tidemark_heap heap, struct tidemark_stats *stats) {
	static const struct tidemark_stats none = { 0, 0, 0, 0, 0, 0, 0 };
	int (*call)(tidemark_heap, struct tidemark_stats *, size_t);

	if (stats) *stats = none;
	TIDEMARK_API_FIND(call, tidemark_api_stats_v1);
	return call ? call(heap, stats, sizeof *stats) : TIDEMARK_NOT_RECORDED;
}
#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

TIDEMARK_API_INLINE void tidemark_reset_peak(tidemark_heap heap) {
	TIDEMARK_API_CALL(tidemark_api_reset_peak_v1, (tidemark_heap), (heap));
}

/* Not __COUNTER__, which would allow two blocks in a line: clang 22 and later call it an extension, an error where -pedantic -Werror is asked for. */
#define TIDEMARK_JOIN2(a, b) a##b
#define TIDEMARK_JOIN(a, b) TIDEMARK_JOIN2(a, b)

#ifndef __cplusplus

struct tidemark_block {
	int open;
};

TIDEMARK_API_INLINE struct tidemark_block tidemark_block_begin(void *block, const char *name, const void *frame) {
	struct tidemark_block begun = { 0 };
	void (*call)(const void *, const char *, const void *);

	TIDEMARK_API_FIND(call, tidemark_api_block_begin_v1);
	if (!call || !name) return begun;
	call(block, name, frame);
	begun.open = 1;
	return begun;
}

TIDEMARK_API_INLINE void tidemark_block_end(const struct tidemark_block *block) {
	if (block->open) TIDEMARK_API_CALL(tidemark_api_block_end_v1, (const void *, int), (block, 0));
}

#define TIDEMARK_SCOPE(name) \
	struct tidemark_block TIDEMARK_JOIN(tidemark_block_, __LINE__) \
		__attribute__((cleanup(tidemark_block_end))) = tidemark_block_begin(&TIDEMARK_JOIN(tidemark_block_, __LINE__), \
										    (name), __builtin_frame_address(0))

#else
}

class tidemark_block {
      public:
	tidemark_block(const char *name, const void *frame) : unwinding_(0), open_(false) {
		void (*call)(const void *, const char *, const void *);

		TIDEMARK_API_FIND(call, tidemark_api_block_begin_v1);
		if (!call || !name) return;
		unwinding_ = unwinding();
		open_ = true;
		call(this, name, frame);
	}

	~tidemark_block() {
		if (open_) TIDEMARK_API_CALL(tidemark_api_block_end_v1, (const void *, int), (this, unwinding() > unwinding_));
	}

      private:
	/* Exceptions under way; before C++17 only whether there is one. */
	static int unwinding() {
#if defined(__GNUC__) && !defined(__EXCEPTIONS)
		return 0; /* there are none, and perhaps no library that counts them */
#elif __cplusplus >= 201703L
		return std::uncaught_exceptions();
#else
		return std::uncaught_exception();
#endif
	}

	tidemark_block(const tidemark_block &);
	tidemark_block &operator=(const tidemark_block &);
	int unwinding_;
	bool open_;
};

#define TIDEMARK_SCOPE(name) tidemark_block TIDEMARK_JOIN(tidemark_block_, __LINE__)((name), __builtin_frame_address(0))

#endif

#endif
