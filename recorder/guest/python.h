/* python.h - what the guest knows of a CPython interpreter in its process.
 *
 * Flow:     modules.c finds the interpreter's symbols -> python_find.c (which version, where its structures keep what) -> python_stack.c, called by
 *           emit.c for every stack -> python_codes.c (code objects, once) -> PYTHON_RUN, PYTHON_CODE, PYTHON_STACK records of ../shm.h
 *           python_heap.c: the interpreter's own allocator, with --python-heap=on
 * Owns:     one struct tm_python (the process), one struct tm_python_thread for each thread that was seen in Python.
 * Threads:  tm_python is written by the thread that refreshes the modules, then only read. A tm_python_thread is its thread's alone.
 * Failure:  a stack without its Python part; nothing else.
 *
 * Reads that cannot fault. No lock of the interpreter is taken and nothing is allocated or counted; its memory is only read:
 * - A thread walks nothing but its own thread state and frames. What they are made of is pushed and popped by the thread itself, so while it is in a hook
 *   they stand still, whoever holds the GIL; every code object on the way is held by its frame.
 * - A thread that is in no Python function may have its state deleted by another one, or run by it. So a state is read only while the thread's native stack
 *   runs a Python function, or, from 3.12 on, while the thread itself runs the state.
 * - A signal handler may have come in the middle of a push. So a pointer is followed only if it could be one (aligned, within user space), and a frame
 *   only once its code is seen to be a code object. What has been a frame before stays mapped memory while the thread is inside its interpreter.
 * - At finalization another thread deletes the states of threads that still run C code. It cannot unmap or free anything without coming through a hook
 *   of ours, where it finds the interpreter's finalizing flag set: tm_python_leaves() then turns walks off and waits for those under way.
 */
#ifndef TIDEMARK_GUEST_PYTHON_H
#define TIDEMARK_GUEST_PYTHON_H

#include "guest.h"

#include <link.h>

/* --- symbols of the interpreter, looked up in the module that has one of the first two --- */

#define TM_PYTHON_SYMBOLS(X) \
	X(IS_FINALIZING, "Py_IsFinalizing") X(IS_FINALIZING_OLD, "_Py_IsFinalizing") X(THIS_THREAD, "PyGILState_GetThisThreadState") \
	X(EVAL, "_PyEval_EvalFrameDefault") X(RUNTIME, "_PyRuntime") X(VERSION, "Py_Version") X(GET_VERSION, "Py_GetVersion") \
	X(CODE_TYPE, "PyCode_Type") X(CURRENT_THREAD, "_PyThreadState_UncheckedGet") X(CURRENT_THREAD_313, "PyThreadState_GetUnchecked") \
	X(HEAD, "PyInterpreterState_Head") X(MAIN, "PyInterpreterState_Main") X(GET_ALLOCATOR, "PyMem_GetAllocator") X(SET_ALLOCATOR, "PyMem_SetAllocator") \
	X(IS_INITIALIZED, "Py_IsInitialized")

enum tm_python_symbol {
#define X(id, name) TM_PYTHON_##id,
	TM_PYTHON_SYMBOLS(X)
#undef X
		TM_PYTHON_SYMBOL_COUNT
};

struct tm_python_module { /* all zero: there is none */
	uintptr_t symbols[TM_PYTHON_SYMBOL_COUNT];
	size_t eval_bytes;
	uintptr_t text_low, text_high; /* code of the module */
	uintptr_t unwind_table;        /* its .eh_frame_hdr */
	uintptr_t check;               /* the function that says whether the interpreter finalizes, */
	uintptr_t flag;                /* and the word that this says to be 0 or not, if it does nothing else; 0: it has to be called */
	uintptr_t current;             /* the word that current_thread() below returns, likewise */
	uintptr_t pending;             /* not 0: where an interpreter lies that the loader has not made ready yet: nothing else is said of it */
};

/* --- the process --- */

/* How frames are chained: objects (to 3.10), inner frames behind a struct on the C stack (3.11, 3.12), inner frames (from 3.13 on). */
enum tm_python_frames { TM_PYTHON_NONE, TM_PYTHON_OBJECTS, TM_PYTHON_INNER_311, TM_PYTHON_INNER };

/* Where frames are found, the same in all builds of 3.11, so that the compiler may know: a struct tm_python_offsets. */
#define TM_PYTHON_OFFSETS_311 56, 8, 48, 32, 56, 69, 68

#define TM_PYTHON_READY 1u        /* what follows is filled in, and Python stacks are wanted */
#define TM_PYTHON_LEAVING 2u      /* the interpreter finalizes: no walks */
#define TM_PYTHON_HEAP_PENDING 4u /* python_heap.c waits for a moment at which the GIL is held */
#define TM_PYTHON_ASKS 8u         /* another interpreter was here, or this one was finalized: where it had its threads' states may be no more */

struct tm_python {
	union {
		struct {
			_Atomic uint32_t state;       /* TM_PYTHON_READY and so on */
			_Atomic uint32_t codes_freed; /* code objects, since they are counted: another may lie where one was */
		};
		_Atomic uint64_t state_and_freed; /* every stack asks, of both at once */
	};
	_Atomic bool heap_begins;     /* python_heap.c looks as each hook is left: the interpreter begins, and may set another allocator */
	_Atomic bool counts_codes;
	bool is_program; /* the process is nothing but the interpreter: it exits when that finalizes */
	enum tm_python_frames kind;
	uint32_t version;          /* 0x030c for 3.12 */
	bool cframe;               /* the thread state points to a struct that points to the frame */
	struct tm_python_offsets {
		uint16_t top, cframe_top;                     /* thread state -> frame or cframe; cframe -> frame */
		uint16_t previous, code, instr, owner, entry; /* of a frame */
	} offsets;
	uint16_t filename, name, first_line, table, bytecode; /* of a code object */
	uint16_t type;             /* of an object */
	uint16_t bytes_size, bytes_data, text_length, text_state, text_ascii; /* of bytes and str */
	uint16_t copy_index, copies; /* free-threaded: a frame's number of its copy of the bytecode, a code object's array of them; 0: none */
	uintptr_t code_type;
	void *(*this_thread)(void);    /* the calling thread's state, NULL: none */
	const uintptr_t *
		interpreters; /* from 3.15 on: 0 while there is none, and nothing is called, as the loader may not be done yet; to 3.14 NULL */
	void *(*current_thread)(void); /* the state that runs; to 3.11 whichever thread it is of, */
	void *const _Atomic *current;  /* and there is a word that has it; NULL: not known */
	void *(*head)(void), *(*main)(void);
	int (*is_finalizing)(void);
	uint64_t (*_Atomic same)(struct tm_thread *); /* tm_python_same(): as frames are chained */
	struct tm_python_range {
		uintptr_t low, high;
	} runs[2];                 /* code that runs Python functions, and the part of it that the compiler put elsewhere */
	unsigned run_count;
	uint32_t generation; /* counts interpreters whose code these were: one may be loaded again elsewhere, or another one */
	struct tm_python_module module;
};

extern struct tm_python tm_python TM_HIDDEN;

/* Is the interpreter in this module? Called by modules.c from within dl_iterate_phdr(). */
bool tm_python_look_in(const struct dl_phdr_info *info, struct tm_python_module *out);
/* modules.c: the loaded modules have changed; the interpreter among them, if there is one. Outside of the loader's lock. */
void tm_python_found(struct tm_thread *t, const struct tm_python_module *module);
/* From 3.12 on: where the calling thread has the state that it runs; NULL: it is not understood. */
void *const _Atomic *tm_python_own_current(const struct tm_python *p);
/* The interpreter's finalizing flag is set: no walk begins any more, and none is under way when this returns. Cheap once done. */
void tm_python_leaves(const struct tm_thread *t);
/* No other thread of the process that lives has had an event, not even one without a ring. */
bool tm_python_is_alone(const struct tm_thread *t);

/* python_heap.c: the interpreter was found, or is initialized again; a stack is being taken while TM_PYTHON_HEAP_PENDING is set. */
void tm_python_heap_found(struct tm_thread *t);
void tm_python_heap_poll(struct tm_thread *t);
/* A hook is left while heap_begins is set. False: it needs no more looks. */
bool tm_python_heap_at_leave(struct tm_thread *t);

/* --- a thread --- */

/* Is the calling thread's Python stack the one that was sent last, as far as that is seen quickly? TM_RING_PYTHON, perhaps with TM_RING_CUT, where a record's
 * first word has its flags; 0: it has to be taken. Writes nothing. */
static inline uint64_t tm_python_same(struct tm_thread *t) {
	return atomic_load_explicit(&tm_python.same, memory_order_relaxed)(t);
}
/* Takes it and writes what changed since the last one. Flags likewise; 0: there is none. */
uint64_t tm_python_take_asking(struct tm_thread *t);

static inline uint64_t tm_python_take(struct tm_thread *t) {
	uint64_t same = tm_python_same(t);
	return TM_LIKELY(same != 0) ? same : tm_python_take_asking(t);
}
void tm_python_set_same(struct tm_python *p); /* its kind is known */
void tm_python_start_thread(struct tm_thread *t); /* the ring is new: nothing of what was sent is known there */
void tm_python_free_thread(struct tm_thread *t);

struct tm_python_frame {
	uintptr_t frame, code;
	uintptr_t instr; /* as the frame has it; the lowest bit says that native code called it (from 3.11 on; instructions lie at even addresses) */
};

#define TM_PYTHON_NO_STATE 1u /* no address of one, nor what a thread has that has none */

struct tm_python_thread {
	void *const _Atomic *place;          /* where libc keeps its value of the key by which the interpreter finds its state; from 3.12 on as `current` */
	void *const _Atomic *current;        /* where the interpreter has the state that runs; from 3.12 on, that this thread runs */
	uintptr_t state;                     /* that the last stack was taken of by quick steps; TM_PYTHON_NO_STATE: the next one cannot be */
	uintptr_t cframe;                    /* which that pointed to */
	struct tm_python_frame *last, *next; /* the stack that was sent last, innermost first; room for another. One more frame ends it: */
	struct tm_python_frame *end;
	union {
		struct {
			uint32_t ready;              /* TM_PYTHON_READY */
			uint32_t codes_freed;        /* when it was taken, or last seen to have its code objects still */
		};
		uint64_t ready_and_freed;
	};
	uint32_t depth;                      /* of it; 0: it is not to be compared with */
	uintptr_t beyond;                    /* where the chain stood behind it */
	uint64_t word;                       /* what a record's first word says of it */
	uint32_t run_frame;                  /* native frame that ran a Python function the last time that was asked, from the outermost */
	uintptr_t run_slot;                  /* the same of a stack that was cut before that frame: where its return address lies */
	uint32_t announced;                  /* the generation whose PYTHON_RUN is in this ring; 0: none */
	bool cut;                            /* it goes on further out */
	uint8_t tries;                       /* to find `place` */
	uint64_t *words;                     /* room for its record */
	struct tm_python_code {
		uintptr_t code;                  /* 0: empty */
		uintptr_t filename, name, table; /* and what it held: code objects are freed, and others come to lie where they were */
		uint64_t numbers, content;       /* first line and size of the table; a hash of its bytes */
		uint64_t texts;                  /* what stands in both texts */
		uint32_t number;
		uint32_t freed;                  /* how often one of its bits had been, when this was last seen to be so */
	} *codes;                            /* open addressing */
	uint32_t code_count, code_capacity, last_number;
	char *text;                          /* python_codes.c: room for the record of one */
};

/* The next stack is not compared with the last one: that is not known to have been sent. */
static inline void tm_python_forget(struct tm_thread *t) {
	if (!t->python) return;
	t->python->depth = 0;
	t->python->state = TM_PYTHON_NO_STATE;
}

/* python_codes.c: the number of a code object in the thread's ring; written there if it is new. 0: it could not be. */
uint32_t tm_python_code_number(struct tm_thread *t, uintptr_t code);
/* None of the code objects of the stack that was sent last was freed since, and that is noted. False: one may have been. */
bool tm_python_codes_are_same(struct tm_python_thread *s);
void tm_python_codes_free(struct tm_python_thread *s); /* what it holds for the thread */
void tm_python_count_codes(struct tm_python *p);       /* those that are freed from here on; counts_codes says whether it can be done */

static inline uintptr_t tm_python_word(uintptr_t object, unsigned offset) {
	return *(const uintptr_t *)(object + offset);
}

/* It could point to an object. */
static inline bool tm_python_plausible(uintptr_t p) {
	return p >= 0x10000 && p < (uintptr_t)1 << 47 && p % 8 == 0;
}

/* --- texts --- */

/* Of a str's state: kind (1, 2 or 4 bytes a character; 3 bits), compact, ascii; 0: it makes no sense. They stand behind `interned`, a number below 4 that has
 * 2, 8 or 16 bits; what is behind them may be anything. So the fewest bits with which they make sense are those that it has. */
static inline unsigned tm_python_text_bits(uint32_t state) {
	static const uint8_t widths[3] = { 2, 8, 16 };
	for (unsigned i = 0; i < 3; i++) {
		unsigned bits = state >> widths[i] & 0x1f;
		if (bits == 0x19 || bits == 0x09 || bits == 0x0a || bits == 0x0c) return bits;
	}
	return 0;
}

#endif
