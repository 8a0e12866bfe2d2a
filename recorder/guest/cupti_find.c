/* cupti_find.c - where CUPTI and the CUDA driver are in this process, and which of their functions there are.
 *
 * Order:    TIDEMARK_CUPTI (a path), one that is loaded already, beside what is loaded, the toolkit of CUDA_HOME or CUDA_PATH,
 *           libcupti.so.13, .12, .11.x by the loader's search, the toolkit in /usr/local/cuda.
 *           The toolkit and PyTorch's wheels keep it in a place of their own, which a loaded libcudart or libtorch leads to: that is the one
 *           that belongs to the program's CUDA. nvcc links libcudart.a unless told otherwise, and then nothing leads there.
 * Threads:  InitializeInjection() runs once, in the thread that first calls the driver.
 */
#include "cupti.h"
#include "process.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

struct tm_cupti tm_cupti;
static void *library;

static const char *const names[] = { "libcupti.so.13",   "libcupti.so.12",   "libcupti.so.11.8", "libcupti.so.11.7", "libcupti.so.11.6", "libcupti.so.11.5",
				     "libcupti.so.11.4", "libcupti.so.11.3", "libcupti.so.11.2", "libcupti.so" };
#define NAME_COUNT (sizeof names / sizeof names[0])

static void *open_any(int flags) {
	void *handle = NULL;
	for (size_t i = 0; i < NAME_COUNT && !handle; i++) handle = dlopen(names[i], flags | RTLD_LAZY | RTLD_LOCAL);
	return handle;
}

/* --- beside a library that is loaded --- */

struct beside {
	unsigned wanted, met;
	char path[4096]; /* "" : there is none */
};

static bool is_neighbour(const char *path) {
	static const char *const parts[] = { "libcudart.so", "libtorch_cuda.so", "libc10_cuda.so", "libcublas.so", "libnvrtc.so" };
	const char *file = strrchr(path, '/');
	for (size_t i = 0; file && i < sizeof parts / sizeof parts[0]; i++)
		if (strncmp(file + 1, parts[i], strlen(parts[i])) == 0) return true;
	return false;
}

static int look_beside(struct dl_phdr_info *info, size_t size, void *context) {
	struct beside *b = context;
	(void)size;
	if (!is_neighbour(info->dlpi_name) || b->met++ != b->wanted) return 0;
	size_t n = strnlen(info->dlpi_name, sizeof b->path - 1);
	memcpy(b->path, info->dlpi_name, n);
	b->path[n] = 0;
	return 1;
}

static char *cut_last(char *path) {
	char *slash = strrchr(path, '/');
	if (slash) *slash = 0;
	return slash;
}

/* Opens DIRECTORY/PART/libcupti.so.N for any N; path has room, and is left as it was. */
static void *open_in(char *path, size_t room, const char *part) {
	size_t n = strlen(path), m = strlen(part);
	void *handle = NULL;
	for (size_t i = 0; i < NAME_COUNT && !handle; i++) {
		size_t k = strlen(names[i]);
		if (n + m + k + 2 > room) break;
		memcpy(path + n, part, m);
		path[n + m] = '/';
		memcpy(path + n + m + 1, names[i], k + 1);
		handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	}
	path[n] = 0;
	return handle;
}

/* .../nvidia/cuda_runtime/lib/libcudart.so.12 -> .../nvidia/cuda_cupti/lib; .../torch/lib/libtorch_cuda.so -> .../nvidia/...;
 * TOOLKIT/lib64 -> TOOLKIT/extras. */
static void *open_beside(void) {
	static const char *const here[] = { "", "/../extras/CUPTI/lib64" };
	static const char *const above[] = { "/cuda_cupti/lib", "/nvidia/cuda_cupti/lib", "/nvidia/cu13/lib" };
	struct beside b;
	void *handle = NULL;
	for (unsigned wanted = 0; wanted < 8 && !handle; wanted++) {
		b = (struct beside){ .wanted = wanted };
		if (!tm_loader_enter()) break;
		bool found = dl_iterate_phdr(look_beside, &b) != 0;
		tm_loader_leave();
		if (!found || !cut_last(b.path)) break;
		for (size_t i = 0; i < 2 && !handle; i++) handle = open_in(b.path, sizeof b.path, here[i]);
		if (handle || !cut_last(b.path) || !cut_last(b.path)) continue;
		for (size_t i = 0; i < 3 && !handle; i++) handle = open_in(b.path, sizeof b.path, above[i]);
	}
	return handle;
}

static void *open_toolkit(const char *root) {
	static const char *const parts[] = { "/lib64", "/extras/CUPTI/lib64", "/lib" };
	char path[4096];
	void *handle = NULL;
	size_t n = root ? strnlen(root, sizeof path) : 0;
	if (!n || n == sizeof path) return NULL;
	memcpy(path, root, n + 1);
	for (size_t i = 0; i < sizeof parts / sizeof parts[0] && !handle; i++) handle = open_in(path, sizeof path, parts[i]);
	return handle;
}

static void *open_library(void) {
	const char *given = tm_environment_value("TIDEMARK_CUPTI");
	void *handle;
	if (given && *given) return dlopen(given, RTLD_LAZY | RTLD_LOCAL);
	handle = open_any(RTLD_NOLOAD);
	if (!handle) handle = open_beside();
	if (!handle) handle = open_toolkit(tm_environment_value("CUDA_HOME"));
	if (!handle) handle = open_toolkit(tm_environment_value("CUDA_PATH"));
	if (!handle) handle = open_any(0);
	if (!handle) handle = open_toolkit("/usr/local/cuda");
	return handle;
}

/* --- functions --- */

static const char *find_functions(void) {
	const char *missing = NULL;
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *function;
	library = open_library();
	if (!library) return "libcupti.so was not found (TIDEMARK_CUPTI names it)";
#define X(name, arguments, is_needed) \
	function = dlsym(library, #name); \
	memcpy(&tm_cupti.name, &function, sizeof function); \
	if (is_needed && !function) missing = "libcupti.so lacks " #name;
	TM_CUPTI_FUNCTIONS(X)
#undef X
#define X(name, arguments) \
	function = driver ? dlsym(driver, #name) : NULL; \
	memcpy(&tm_cupti.name, &function, sizeof function);
	TM_CUDA_FUNCTIONS(X)
#undef X
	return missing;
}

const char *tm_cupti_find(void) {
	const char *why;
	if (tm_is_sandboxed()) return "the program restricts its system calls";
	tm_ours_begin();
	why = find_functions();
	tm_ours_end();
	return why;
}

void *tm_cupti_original(const char *name) {
	void *handle, *function;
	tm_ours_begin();
	handle = library ? library : open_any(RTLD_NOLOAD);
	function = handle ? dlsym(handle, name) : NULL;
	if (handle && handle != library) dlclose(handle);
	tm_ours_end();
	return function;
}

void tm_cupti_find_code(struct tm_thread *t) {
	const uintptr_t inside[] = { (uintptr_t)tm_cupti.cuptiSubscribe, (uintptr_t)tm_cupti.cuMemGetInfo_v2 };
	uintptr_t header;
	if (!tm_is_sandboxed()) tm_modules_refresh(t);
	for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++)
		if (inside[i]) tm_modules_find(inside[i], &tm_cupti.code[i].low, &tm_cupti.code[i].high, &header);
}

bool tm_cupti_is_code(uintptr_t pc) {
	for (size_t i = 0; i < sizeof tm_cupti.code / sizeof tm_cupti.code[0]; i++)
		if (pc - tm_cupti.code[i].low < tm_cupti.code[i].high - tm_cupti.code[i].low) return true;
	return false;
}
