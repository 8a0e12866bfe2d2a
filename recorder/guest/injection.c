/* injection.c - tells NVTX's and ITT's loaders and the CUDA driver, by the environment, that we are their tool: see injection.h.
 *
 * The loaders look once, at the program's first annotation: our constructor is early enough. A child that execs gets the variables with the rest of its
 * environment, and sets them itself where it does not; one that is not to be recorded does not get them (exec_env.c).
 * Profilers that put themselves around a program, and refuse that where they find another tool's name, do not get to see ours, nor does the program that they
 * run see it for the driver; it does for annotations, where they have not named themselves there by then.
 */
#include "injection.h"

#include "process.h"
#include "scope.h"

#include <string.h>

#define NVTX "NVTX_INJECTION64_PATH"
#define ITT "INTEL_LIBITTNOTIFY64"
#define CUDA "CUDA_INJECTION64_PATH"

static bool names_us_to_cuda;

/* True: we are the tool. */
static bool name_us(const char *variable) {
	const char *given = tm_environment_value(variable), *own = tm_own_path();
	if (!*own) return false;
	size_t n = strlen(own) + 1;
	if (given && *given) return strlen(given) + 1 == n && memcmp(given, own, n) == 0;
	return tm_environment_set(variable, own);
}

static bool start(struct tm_thread *t, const char *variable, const char *kind, const char *aside) {
	bool named = name_us(variable);
	if (!named) tm_emit_note(t, kind, aside);
	return named;
}

/* Is this the profiler's own process? Nsight Compute, and its name before 2020; Nsight Systems. */
static bool is_profiler(void) {
	static const char *const names[] = { "ncu", "nv-nsight-cu-cli", "nsys" };
	const char *path = tm_program_path(), *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(name, names[i]) == 0) return true;
	return false;
}

/* Their way into the program that they run looks at the variable, too, and ends the program where it is set. */
#define LAUNCH_TOKEN "NV_TPS_LAUNCH_TOKEN"
static bool is_launched_by_profiler(void) {
	return tm_environment_value(LAUNCH_TOKEN) != NULL;
}

static void take_us_out(const char *variable) {
	const char *given = tm_environment_value(variable);
	if (given && *tm_own_path() && strcmp(given, tm_own_path()) == 0) tm_environment_remove(variable);
}

void tm_injection_start(struct tm_thread *t) {
	if (is_profiler()) {
		take_us_out(NVTX);
		take_us_out(CUDA);
		return;
	}
	if (tm_guest.shm->nvtx)
		start(t, NVTX, "injection", "NVTX_INJECTION64_PATH names another tool: NVTX ranges and heaps are not in this trace");
	if (tm_guest.shm->itt)
		start(t, ITT, "injection", "INTEL_LIBITTNOTIFY64 names another tool: ITT tasks and heaps are not in this trace");
	if (tm_guest.shm->gpu == TM_GPU_OFF) return;
	if (is_launched_by_profiler()) {
		take_us_out(CUDA);
		tm_emit_note(t, "gpu",
			     "a tool of NVIDIA's runs the program (" LAUNCH_TOKEN
			     "), which CUPTI is left to: of CUDA only what PyTorch reports"
			     " is in this trace");
		return;
	}
	names_us_to_cuda = start(
		t, CUDA, "gpu",
		"CUDA_INJECTION64_PATH names another tool, which CUPTI is left to: of CUDA only what PyTorch reports is in this trace");
}

bool tm_injection_names_us(const char *string) {
	static const char *const variables[] = { NVTX "=", ITT "=", CUDA "=" };
	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
		size_t n = strlen(variables[i]);
		if (strncmp(string, variables[i], n) == 0) return *tm_own_path() && strcmp(string + n, tm_own_path()) == 0;
	}
	return false;
}

bool tm_injection_names_us_to_cuda(void) {
	return names_us_to_cuda;
}

size_t tm_text_of_wide(char to[TM_WIDE_MAX], const wchar_t *from) {
	size_t n = 0;
	for (; *from && n + 4 <= TM_WIDE_MAX; from++) {
		uint32_t c = (uint32_t)*from;
		if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
		if (c < 0x80) {
			to[n++] = (char)c;
			continue;
		}
		unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
		to[n++] = (char)((0xff00u >> (more + 1) & 0xff) | c >> 6 * more);
		while (more--) to[n++] = (char)(0x80 | (c >> 6 * more & 0x3f));
	}
	if (*from) tm_note_cut(true);
	return n;
}

void tm_thread_is_named(struct tm_thread *t, const char *name, size_t n) {
	t->named = true;
	tm_emit_control(t, TM_CTL_THREAD_NAME, 0, 0, NULL, 0, name, n < TM_RING_TEXT_MAX ? n : TM_RING_TEXT_MAX);
}
