/* stress.cc - a random program for the sampler: every way that stacks are made in practice, mixed at random, sampled at every malloc.
 *
 * Usage:   stress STACKS [SEED]; prints the seed, what was compared and how many stacks had each feature (outermost scopes included). Status 1: a stack
 *          differed, or a feature was in less than one stack of a hundred (of a million stacks or more; else: was missing).
 * Method:  each short thread has a generator of its own, and grows a random tree of calls: each node samples, and calls nodes below through one of the
 *          features. So features lie within each other in any order.
 */
#include "sampler.h"
#include "stress.h"
#include "trap.h"

#include <algorithm>
#include <alloca.h>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <pthread.h>
#include <regex>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <utility>
#include <vector>

#define NOINLINE __attribute__((noinline))

namespace {

struct State {
	uint64_t random;
	unsigned until_turn; /* so many choices are what they were before, then come others; 0: no such turn is ahead */
	unsigned calls;    /* left in this thread */
	bool only_own;     /* no code but this file's */
	int in_signal;     /* no malloc there: the handler may have interrupted one */
	jmp_buf *landing;
	unsigned depth;
};
thread_local State s;
char directory[512];

uint32_t pick(uint32_t n) {
	if (s.until_turn && --s.until_turn == 0) s.random ^= 0x5bd1e995u;
	s.random = s.random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((s.random >> 33) % n);
}

struct Scope {
	test_feature f;
	explicit Scope(test_feature feature) : f(feature) { test_active[f]++; }
	~Scope() { test_active[f]--; }
};

NOINLINE void sample() {
	if (s.in_signal) {
		tm_test_sample();
		return;
	}
	switch (pick(4)) {
	case 0: free(malloc(1 + pick(200))); break;
	case 1: free(calloc(1, 1 + pick(200))); break;
	case 2: delete[] new char[1 + pick(100)]; break;
	default: tm_test_sample();
	}
}

void node(int fuel);
extern "C" void stress_node(int fuel) { node(fuel); }

/* --- features --- */

template <int N> NOINLINE void frame_of(int fuel) {
	volatile char space[N];
	space[0] = (char)fuel;
	space[N - 1] = space[0];
	node(fuel - 1);
	space[0] = space[N - 1];
}

/* Frames that are alike but for where they were called from, mostly from the same place: stacks that differ anywhere, as little as can be. */
NOINLINE void branching(int levels) {
	if (!levels) {
		sample();
		return;
	}
	switch (pick(12)) {
	case 0: branching(levels - 1); asm volatile("# 0" ::: "memory"); break;
	case 1: branching(levels - 1); asm volatile("# 1" ::: "memory"); break;
	default: branching(levels - 1); asm volatile("# 2" ::: "memory");
	}
}

/* Many functions, so that some share a place in the table of rules. */
template <int... N> void frame_of_some(std::integer_sequence<int, N...>, int fuel) {
	static void (*const some[])(int) = { frame_of<8 + 16 * N>... };
	some[pick(sizeof...(N))](fuel);
}

void plain(int fuel) {
	Scope scope(TEST_plain);
	if (pick(4) == 0)
		for (int i = 0, levels = 2 + (int)pick(8); i < 16; i++) branching(levels);
	if (pick(8)) frame_of_some(std::make_integer_sequence<int, 400>(), fuel);
	else frame_of<20000>(fuel);
}

NOINLINE void with_alloca(int fuel) {
	Scope scope(TEST_alloca);
	size_t n = 1 + pick(400);
	volatile char *p = (volatile char *)alloca(n);
	p[n - 1] = 1;
	node(fuel - 1);
	p[0] = p[n - 1];
}

NOINLINE void with_longjmp(int fuel) {
	unsigned active[TEST_FEATURE_COUNT];
	jmp_buf here, *outer = s.landing;
	struct test_truth *truth = test_truth;
	unsigned depth = s.depth;
	int in_signal = s.in_signal;
	memcpy(active, test_active, sizeof active);
	test_active[TEST_longjmp]++;
	if (setjmp(here) == 0) {
		s.landing = &here;
		node(fuel - 1);
		node(fuel - 2);
	} else {
		memcpy(test_active, active, sizeof active);
		test_active[TEST_longjmp]++;
		test_truth = truth;
		s.depth = depth;
		s.in_signal = in_signal;
		sample();
	}
	s.landing = outer;
	test_active[TEST_longjmp]--;
}

struct Thrown {};

struct Unwound { /* a cleanup that samples while an exception passes */
	~Unwound() { sample(); }
};

NOINLINE void thrower(int fuel) {
	Unwound u;
	node(fuel - 1);
	if (pick(3) == 0) throw Thrown();
}

NOINLINE void with_exception(int fuel) {
	Scope scope(TEST_exception);
	jmp_buf *outer = s.landing;
	unsigned depth = s.depth;
	struct test_truth *truth = test_truth;
	s.landing = nullptr; /* longjmp past a cleanup is undefined */
	try {
		thrower(fuel);
	} catch (const Thrown &) {
		s.depth = depth;
		test_truth = truth;
		sample();
	}
	s.landing = outer;
}

thread_local int handler_fuel;

void handler(int signal, siginfo_t *, void *context) {
	test_feature feature = signal == SIGUSR1 ? TEST_signal : signal == SIGUSR2 ? TEST_altstack : TEST_interrupted;
	jmp_buf *outer = s.landing;
	int fuel = handler_fuel;
	handler_fuel = 0;
	s.in_signal++;
	s.landing = nullptr;
	test_active[feature]++;
	if (signal == SIGTRAP) {
		trap_hit(context);
		tm_test_sample();
	} else {
		node(fuel - 1);
	}
	test_active[feature]--;
	s.landing = outer;
	s.in_signal--;
}

NOINLINE void with_signal(int fuel) {
	if (s.in_signal > 1) {
		sample();
		return;
	}
	handler_fuel = fuel;
	raise(pick(2) ? SIGUSR1 : SIGUSR2);
	s.random ^= 1;
}

/* Code that is full of moments in which a frame is half built, interrupted at each instruction. */
NOINLINE unsigned spin() {
	unsigned x = pick(1000);
	if (s.in_signal) return x;
	stress_trap(true);
	x = stress_interruptible(x);
	stress_trap(false);
	return x;
}

/* Stacks above those of all threads, since they were there before; out of use they cannot be read. */
const size_t coroutine_bytes = 256 << 10, pooled = 64;
char *pool;
std::atomic<bool> pool_used[pooled];

void *stack_from_pool() {
	for (size_t i = 0; i < pooled; i++) {
		if (pool_used[i].exchange(true)) continue;
		mprotect(pool + i * coroutine_bytes, coroutine_bytes, PROT_READ | PROT_WRITE);
		return pool + i * coroutine_bytes;
	}
	return nullptr;
}

void *get_stack(unsigned *kind) {
	*kind = pick(3);
	void *stack = *kind == 2 ? stack_from_pool() : nullptr;
	if (stack) return stack;
	*kind %= 2;
	return *kind ? mmap(nullptr, coroutine_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : malloc(coroutine_bytes);
}

void put_stack(void *stack, unsigned kind) {
	if (kind == 0) free(stack);
	else if (kind == 1) munmap(stack, coroutine_bytes);
	else {
		mprotect(stack, coroutine_bytes, PROT_NONE);
		pool_used[(size_t)((char *)stack - pool) / coroutine_bytes] = false;
	}
}

struct Coroutine {
	ucontext_t inside, outside;
	int fuel;
	bool done;
	State *state;
};

void coroutine_main(unsigned high, unsigned low) {
	Coroutine *c = (Coroutine *)((uintptr_t)high << 32 | low);
	unsigned rounds = 2 + pick(3);
	for (unsigned i = 0; i < rounds; i++) {
		node(c->fuel - 1);
		swapcontext(&c->inside, &c->outside);
	}
	c->done = true;
	swapcontext(&c->inside, &c->outside);
}

NOINLINE void with_coroutines(int fuel) {
	Scope scope(TEST_coroutine);
	jmp_buf *outer = s.landing;
	if (s.in_signal) {
		sample();
		return;
	}
	s.landing = nullptr;
	struct test_truth *truth = test_truth;
	test_truth = nullptr;
	Coroutine two[2];
	unsigned kinds[2];
	for (int i = 0; i < 2; i++) {
		Coroutine *c = &two[i];
		c->done = false;
		c->fuel = fuel < 5 ? fuel : 5;
		getcontext(&c->inside);
		c->inside.uc_stack.ss_sp = get_stack(&kinds[i]);
		c->inside.uc_stack.ss_size = coroutine_bytes;
		c->inside.uc_link = nullptr;
		makecontext(&c->inside, (void (*)())coroutine_main, 2, (unsigned)((uintptr_t)c >> 32), (unsigned)(uintptr_t)c);
	}
	while (!two[0].done || !two[1].done) {
		for (Coroutine &c : two) {
			if (!c.done) swapcontext(&c.outside, &c.inside);
		}
		sample();
	}
	for (int i = 0; i < 2; i++) put_stack(two[i].inside.uc_stack.ss_sp, kinds[i]);
	test_truth = truth;
	s.landing = outer;
}

NOINLINE void tail_two(int fuel) { return node(fuel - 1); }
NOINLINE void tail_one(int fuel) { return tail_two(fuel); }
NOINLINE void *tail_malloc(size_t n) { return malloc(n); }

NOINLINE void with_tail_call(int fuel) {
	Scope scope(TEST_tail_call);
	if (!s.in_signal) free(tail_malloc(1 + pick(30)));
	tail_one(fuel);
	s.depth |= 0;
}

void with_rbp_general(int fuel) {
	Scope scope(TEST_rbp_general);
	stress_rbp_general(fuel - 1, s.random);
}

void with_frame_pointers(int fuel) {
	Scope scope(TEST_frame_pointers);
	stress_frame_pointers(fuel - 1);
}

/* What lies between two frames is ours, and none, or else the program's and in equal frames. */
NOINLINE void with_ours(int fuel) {
	Scope scope(TEST_ours);
	for (int i = 0; i < 6; i++) {
#if defined(__x86_64__)
		static void (*const passes[])(void (*)(int), int) = { tm_test_pass, stress_pass, tm_test_pass_framed, stress_pass_framed };
#else
		static void (*const passes[])(void (*)(int), int) = { tm_test_pass, stress_pass, tm_test_pass, stress_pass };
#endif
		void (*volatile pass)(void (*)(int), int) = passes[pick(4)];
		pass(pick(2) ? stress_node : (void (*)(int))tm_test_sample, fuel - 2);
	}
}

#if defined(__x86_64__)
/* Only a saved frame pointer changes, between stacks that are else the same. */
void with_pivoted(int fuel) {
	Scope scope(TEST_pivoted);
	static void (*const functions[])(int, uint64_t) = { stress_pivoted, stress_pivoted, stress_pivoted_aligned, stress_pivoted_in_plain, stress_pivoted_in_plain, stress_pivoted_in_ours };
	uint64_t choices = 0, few[3] = { pick(64), pick(64), pick(64) };
	for (int i = 0; i < 10; i++) choices = choices << 6 | (few[pick(3)] ^ (pick(2) << 2)); /* few, so that they come again */
	functions[pick(6)](fuel - 1, choices);
}

void with_gap(int fuel) {
	Scope scope(TEST_gap);
	unsigned choices = 0, few[2] = { pick(8), pick(8) };
	for (int i = 0; i < 8; i++) choices = choices << 4 | few[pick(2)] << 1 | pick(2);
	switch (pick(3)) {
	case 0: stress_gap(fuel - 1, choices); break;
	case 1: stress_gap_framed(fuel - 1, choices); break;
	default:
		for (int i = 0; i < 8; i++) stress_gap_late((int)(choices >> 2 * i));
	}
}
/* The same with frame pointers alone, in C: a frame, or as much room, which keeps what that frame left. */
NOINLINE void frame_or_room(unsigned frames, size_t room, uintptr_t *at) {
	volatile char *p = (volatile char *)alloca(room);
	*at = (uintptr_t)__builtin_frame_address(0);
	if (frames) frame_or_room(frames - 1, 0, at + 1);
	else tm_test_sample();
	asm volatile("" : : "r"(p) : "memory");
}

void with_frames_or_room() {
	Scope scope(TEST_gap);
	uintptr_t at[3];
	frame_or_room(2, 0, at);
	for (int i = 0; i < 8; i++) {
		unsigned frames = pick(3);
		frame_or_room(frames, (2 - frames) * (at[0] - at[1]), at);
	}
}
#else
void with_frames_or_room() {}
void with_pivoted(int fuel) { plain(fuel); }
void with_gap(int fuel) { plain(fuel); }
#endif

void with_aligned(int fuel) {
	Scope scope(TEST_aligned);
	stress_aligned(fuel - 1, 1 + pick(100));
}

/* Code without any description. */
void with_jit(int fuel) {
	static void (*const framed)(void (*)(int), int) = (void (*)(void (*)(int), int))stress_make_code(true);
	static void (*const bare)(void (*)(int), int) = (void (*)(void (*)(int), int))stress_make_code(false);
	bool fp = pick(2);
	Scope scope(fp ? TEST_jit : TEST_jit_without_fp);
	struct test_truth *truth = s.in_signal ? nullptr : (struct test_truth *)calloc(1, sizeof *truth);
	struct test_truth *outer = test_truth;
	jmp_buf *landing = s.landing;
	s.landing = nullptr;
	if (truth) tm_test_stack_here(truth);
	test_truth = truth;
	(fp ? framed : bare)(stress_node, fuel - 1);
	test_truth = outer;
	s.landing = landing;
	free(truth);
}

#if defined(__x86_64__)
/* What is guessed by a frame pointer, which alone changes: at first it is the code's own, then that of its caller. */
thread_local struct test_truth *truths[2];

void sample_pivoted(int second) {
	test_truth = truths[second];
	tm_test_sample();
}

NOINLINE void with_pivoted_jit() {
	static void (*const code)(void (*)(int)) = (void (*)(void (*)(int)))stress_make_pivoted_code();
	if (s.in_signal) return;
	Scope scope(TEST_jit);
	struct test_truth *outer = test_truth;
	for (struct test_truth *&truth : truths) truth = (struct test_truth *)calloc(1, sizeof *truth);
	tm_test_stack_here(truths[1]);
	truths[0]->depth = std::min(truths[1]->depth + 1, 1024u); /* stress_call_with_fp() comes first */
	memcpy(truths[0]->pcs + 1, truths[1]->pcs, (truths[0]->depth - 1) * sizeof *truths[0]->pcs);
	stress_call_with_fp(code, sample_pivoted);
	test_truth = outer;
	for (struct test_truth *truth : truths) free(truth);
}
#else
void with_pivoted_jit() {}
#endif

/* Two libraries in turn: the second mostly comes to lie where the first was. */
thread_local void *last_base;
pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER; /* libunwind must be told of one that went before another comes */

typedef void call_to(void (*to)(int), int fuel);

void *load(const char *name) {
	char path[600];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "cannot load %s: %s\n", path, dlerror());
		exit(2);
	}
	return library;
}

#if defined(__x86_64__)
/* As if another thread did it: while this one is not in the library. */
void replace(stress_replacing *r) {
	tm_test_pause(true);
	dlclose(r->library);
	r->library = load("plugin_b.so");
	r->pass = (call_to *)dlsym(r->library, "plugin_pass");
	tm_test_pause(false);
}

void with_replaced(int fuel) {
	Scope scope(TEST_replaced);
	pthread_mutex_lock(&loading);
	void *library = load("plugin_a.so");
	stress_replacing r = { (call_to *)dlsym(library, "plugin_pass"), replace, pick(2) ? stress_node : (void (*)(int))tm_test_sample, fuel - 1, library };
	stress_replaced(&r);
	dlclose(r.library);
	pthread_mutex_unlock(&loading);
}

/* The range has another library already, though the dlclose of the first goes on. */
thread_local int fuel_in_dlclose;

void load_in_dlclose() {
	Scope scope(TEST_closing);
	test_in_dlclose = nullptr;
	void *library = load("plugin_b.so");
	for (int i = 0; i < 8; i++) ((call_to *)dlsym(library, "plugin_pass"))(stress_node, fuel_in_dlclose - 1);
	dlclose(library);
}

void with_closing(int fuel) {
	pthread_mutex_lock(&loading);
	void *library = load("plugin_a.so");
	for (int i = 0; i < 4; i++) ((call_to *)dlsym(library, "plugin_pass"))(stress_node, fuel - 1);
	fuel_in_dlclose = fuel;
	test_in_dlclose = load_in_dlclose;
	dlclose(library);
	pthread_mutex_unlock(&loading);
}
#else
void with_replaced(int) {}
void with_closing(int) {}
#endif

void use_plugin(const char *name, int fuel) {
	pthread_mutex_lock(&loading);
	void *library = load(name);
	pthread_mutex_unlock(&loading);
	call_to *call = (call_to *)dlsym(library, "plugin_call");
	Dl_info info;
	dladdr((void *)call, &info);
	bool reused = info.dli_fbase == last_base;
	last_base = info.dli_fbase;
	test_active[TEST_plugin]++;
	test_active[TEST_range_reused] += reused;
	for (int i = 0; i < 12; i++) call(stress_node, fuel - 1);
	test_active[TEST_plugin]--;
	test_active[TEST_range_reused] -= reused;
	pthread_mutex_lock(&loading);
	dlclose(library);
	pthread_mutex_unlock(&loading);
}

void with_plugins(int fuel) {
	jmp_buf *landing = s.landing;
	if (s.in_signal || test_active[TEST_plugin] || pick(12)) {
		sample();
		return;
	}
	s.landing = nullptr;
	test_active[TEST_plugin]++;
	with_replaced(fuel);
	with_closing(fuel);
	test_active[TEST_plugin]--;
	for (int i = 0; i < 3; i++) {
		use_plugin("plugin_a.so", fuel);
		use_plugin("plugin_b.so", fuel);
	}
	s.landing = landing;
}

int by_value(const void *a, const void *b) {
	if (pick(8) == 0) sample();
	return *(const int *)a - *(const int *)b;
}

void with_library(int fuel) {
	Scope scope(TEST_library);
	jmp_buf *landing = s.landing;
	if (s.in_signal) {
		sample();
		return;
	}
	s.landing = nullptr;
	std::vector<int> numbers(8);
	for (int &n : numbers) n = (int)pick(100);
	switch (pick(6)) {
	case 0: qsort(numbers.data(), numbers.size(), sizeof(int), by_value); break;
	case 1: {
		int wanted = (int)pick(100);
		bsearch(&wanted, numbers.data(), numbers.size(), sizeof(int), by_value);
		break;
	}
	case 2: std::sort(numbers.begin(), numbers.end(), [](int a, int b) { return by_value(&a, &b) < 0; }); break;
	case 3: {
		std::function<void(int)> f = [fuel](int) { node(fuel - 1); };
		f(1);
		break;
	}
	case 4: {
		std::map<std::string, int> map;
		for (int n : numbers) map["a key that is long enough to be allocated " + std::to_string(n)] = n;
		break;
	}
	default:
		if (pick(16) == 0) {
			std::regex r("(a|b)*c[0-9]+");
			std::regex_match("ababc12", r);
		} else {
			std::for_each(numbers.begin(), numbers.begin() + 2, [fuel](int) { node(fuel - 2); });
		}
	}
	s.landing = landing;
}

void node(int fuel) {
	sample();
	if (fuel <= 0 || s.calls == 0 || s.depth > 60) return;
	s.calls--;
	s.depth++;
	unsigned children = 1 + (pick(3) == 0);
	for (unsigned i = 0; i < children; i++) {
		static const unsigned own[] = { 0, 2, 10, 22, 26, 28 };
		switch (s.only_own ? own[pick(6)] : pick(29)) {
		case 0:
		case 1: with_alloca(fuel); break;
		case 2:
		case 3: with_longjmp(fuel); break;
		case 4:
		case 5: with_exception(fuel); break;
		case 6:
		case 7:
		case 8: with_signal(fuel); break;
		case 9: with_coroutines(fuel); break;
		case 10:
		case 11: with_tail_call(fuel); break;
		case 12:
		case 13: with_rbp_general(fuel); break;
		case 14:
		case 15: with_aligned(fuel); break;
		case 16:
			if (pick(4) == 0) with_jit(fuel);
			else if (pick(4) == 0) with_pivoted_jit();
			break;
		case 17: with_plugins(fuel); break;
		case 18:
		case 19: with_library(fuel); break;
		case 20: with_frame_pointers(fuel); break;
		case 21: spin(); break;
		case 23: with_pivoted(fuel < 3 ? fuel : 3); break;
		case 24: with_gap(fuel < 3 ? fuel : 3); break;
		case 25: with_ours(fuel); break;
		case 26: with_frames_or_room(); break;
		case 22:
			if (s.landing && !s.in_signal && pick(4) == 0) longjmp(*s.landing, 1);
			break;
		default: plain(fuel);
		}
	}
	s.depth--;
	if (pick(2)) sample();
}

/* --- threads --- */

uint64_t seed, wanted;

void *grow(void *) {
	s.calls = 400;
	while (s.calls > 0) {
		unsigned before = s.calls, times = pick(2) ? 1 : 2 + pick(12);
		int fuel = 3 + (int)pick(30);
		uint64_t random = s.random;
		for (unsigned i = 0; i < times; i++) { /* the same stacks again, up to a turn, from where there are others at the same places */
			s.random = random;
			s.until_turn = i % 3 == 2 ? 1 + (unsigned)((random >> 24) + i * 37) % 150 : 0;
			s.calls = before;
			node(fuel);
		}
		s.until_turn = 0;
		if (s.calls == before) s.calls--;
	}
	return nullptr;
}

void *short_thread(void *number) {
	static thread_local char alternate[128 << 10];
	stack_t stack = {};
	stack.ss_sp = alternate;
	stack.ss_size = sizeof alternate;
	sigaltstack(&stack, nullptr);
	s.random = seed * 0x9e3779b97f4a7c15ull + (uint64_t)(uintptr_t)number;
	pick(1);
	test_active[TEST_short_thread]++;
	if ((uintptr_t)number % 6 == 1) { /* the first one in any case: a short run has few threads */
		unsigned limit = 8 + pick(40);
		tm_test_limit(limit);
		test_active[TEST_depth_limit]++;
		for (int i = 0; i < 80; i++) branching((int)(limit > 12 ? limit - 12 : 0) + (int)pick(14)); /* some are deeper, by a few frames */
	}
	s.only_own = test_by_frame_pointers && pick(2);
	if (!s.only_own && (uintptr_t)number % 6 != 2 && pick(4)) { /* the second one in no case */
		grow(nullptr);
	} else {
		Scope scope(TEST_way_in);
		tm_test_as_main(grow, nullptr);
	}
	stack.ss_flags = SS_DISABLE;
	sigaltstack(&stack, nullptr);
	return nullptr;
}

void catch_signals() {
	struct sigaction action = {};
	action.sa_sigaction = handler;
	action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
	sigaction(SIGUSR1, &action, nullptr);
	sigaction(SIGTRAP, &action, nullptr);
	action.sa_flags |= SA_ONSTACK;
	sigaction(SIGUSR2, &action, nullptr);
}

const char *const names[] = {
#define X(name) #name,
	TEST_FEATURES(X)
#undef X
};

} // namespace

int main(int argc, char **argv) {
	wanted = argc > 1 ? strtoull(argv[1], nullptr, 0) : 200000;
	seed = argc > 2 ? strtoull(argv[2], nullptr, 0) : (uint64_t)time(nullptr) * 1000003u + (uint64_t)getpid();
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	snprintf(directory, sizeof directory, "%s", argv[0]);
	char *slash = strrchr(directory, '/');
	if (slash) *slash = 0;
	catch_signals();
	test_has_truth = true;
	pool = (char *)mmap(nullptr, pooled * coroutine_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct test_counts counts;
	uintptr_t number = 0;
	do {
		pthread_t threads[2];
		for (pthread_t &thread : threads) pthread_create(&thread, nullptr, short_thread, (void *)++number);
		for (pthread_t &thread : threads) pthread_join(thread, nullptr);
		tm_test_counts(&counts);
	} while (counts.stacks < wanted);
	printf("%llu stacks of %.1f frames, %.1f of them new, %.0f %% quickly, %.0f %% known, of %llu that were learned, in %lu threads; %llu cut, %llu beyond code without a description\n", counts.stacks,
	       (double)counts.frames / (double)counts.stacks, (double)counts.fresh / (double)counts.stacks,
	       100.0 * (double)counts.quick / (double)counts.stacks, 100.0 * (double)counts.known / (double)counts.stacks, counts.learned, (unsigned long)number, counts.cut, counts.beyond);
	if (counts.whole) printf("%llu with frame pointers throughout\n", counts.whole);
	/* Of few stacks, chance alone may make a feature rare. */
	const double least = counts.stacks >= 1000000 ? 1 : counts.stacks >= 50000 ? 0.01 : 0;
	bool rare = false;
	for (int i = 0; i < TEST_FEATURE_COUNT; i++) {
		double share = 100.0 * (double)counts.features[i] / (double)counts.stacks;
		printf("  %-16s %5.1f %%\n", names[i], share);
		rare |= share < least;
	}
	printf("%llu wrong, %llu with a wrong mark of a cut%s\n", counts.wrong, counts.wrong_cut, rare ? "; a feature is too rare" : "");
	return counts.wrong || counts.wrong_cut || rare;
}
