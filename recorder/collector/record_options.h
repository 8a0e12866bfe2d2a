/* record_options.h - what the user asked for: the command line of tidemark-record, listed once.
 *
 * Flow:     record_main.c -> here -> struct tm_options, read by everybody, changed by nobody afterwards.
 * Owns:     nothing; texts point into argv.
 * Fails:    with one line on standard error, but where the program has started us and TIDEMARK_VERBOSE is not set; TM_OPTIONS_BAD.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_RECORD_OPTIONS_H
#define TIDEMARK_RECORDER_COLLECTOR_RECORD_OPTIONS_H

#include "alerts.h"

#include <stdbool.h>
#include <stdint.h>

/* X(identifier, name, short letter or 0, value shown in the help or NULL, default as text or NULL, help).
 * Every option lands in a field of struct tm_options through the function of its name in record_options.c. */
#define TM_RECORD_OPTIONS(X) \
	X(output, "output", 'o', "FILE", "tidemark.%h.%p.tmk", \
	  "write the trace to FILE; %p pid, %h host, %r rank, %j job, %s step, %t start time, " \
	  "%q{VAR} variable, %% percent; directories are made") \
	X(stacks, "stacks", 0, "unwind|fp|off", "unwind", "how call stacks are taken; fp needs -fno-omit-frame-pointer") \
	X(max_depth, "max-depth", 0, "N", "1024", "keep the N innermost native frames of a stack, and as many of Python, 1 to 4096") \
	X(sample, "sample", 0, "BYTES", "0", "record a Poisson sample, one allocation in BYTES allocated; 0 records every allocation") \
	X(mappings, "mappings", 0, "on|off", "on", "record mmap, munmap, mremap, brk and their kin") \
	X(python, "python", 0, "auto|off", "auto", "Python functions in call stacks, where there are any") \
	X(python_heap, "python-heap", 0, "on|off", "off", "record the objects of Python's own allocator, too") \
	X(torch, "torch", 0, "auto|off", "auto", "record PyTorch's tensors and operators, where there are any") \
	X(gpu, "gpu", 0, "auto|cupti|off", "auto", "record CUDA through CUPTI; auto makes room for other tools, cupti does not") \
	X(nvtx, "nvtx", 0, "auto|off", "auto", "record NVTX ranges, marks and heaps, unless another tool does") \
	X(itt, "itt", 0, "auto|off", "auto", "record ITT tasks, frames and heap calls, unless another tool does") \
	X(follow, "follow", 0, "on|off", "on", "record child processes too") \
	X(interval, "interval", 0, "MS", "100", \
	  "milliseconds between readings of RSS, PSS, swap, cgroup; 0: only at marks, steps, snapshots and baselines, where they are taken anyway") \
	X(on_full, "on-full", 0, "wait|drop", "wait", "what a thread does when its buffer is full; losses are counted") \
	X(ring, "ring", 0, "SIZE", "4MiB", "buffer for each thread, rounded up to a power of two; less beyond the fourth thread") \
	X(max_size, "max-size", 0, "SIZE[,stop|ring]", NULL, \
	  "stop recording when the trace has grown to SIZE, the program runs on; ring: drop the oldest events instead, and keep the " \
	  "newest and what is live (SIZE at least 256KiB)") \
	X(dumps, "dumps", 0, "N", "4", \
	  "with ring: make at most N copies of the trace by itself, at alerts, refused memory and fatal signals") \
	X(alert, "alert", 0, "EXPR", NULL, \
	  "mark the trace when a threshold is crossed: 'rss > 8GiB', 'live(malloc) > 90%'; of rss, pss, swap, cgroup, device_used, " \
	  "live, live(HEAP); 16 at most") \
	X(names, "names", 0, "embed|none", "embed", "look up function, file and line when the program has ended") \
	X(args, "args", 0, "keep|drop", "keep", "keep or drop command-line arguments in the trace") \
	X(linger, "linger", 0, "TIME", "5s", "how long to wait for recorded descendants when the command has ended") \
	X(force, "force", 0, NULL, NULL, "overwrite FILE if it exists") \
	X(quiet, "quiet", 0, NULL, NULL, "no closing summary") \
	X(verbose, "verbose", 0, NULL, NULL, "say what is being done") \
	X(attach, "attach", 0, "PID", NULL, NULL) \
	X(session_fd, "session-fd", 0, "FD", NULL, NULL) \
	X(help, "help", 'h', NULL, NULL, "show this help") \
	X(version, "version", 'V', NULL, NULL, "show the version")

struct tm_options {
	const char *output;
	uint32_t stacks; /* enum tm_stacks_mode */
	uint32_t max_depth;
	uint64_t sample_bytes;
	bool mappings, python, python_heap, torch, nvtx, itt, follow;
	uint32_t gpu; /* enum tm_gpu_mode */
	uint64_t interval_ms;
	uint32_t on_full; /* enum tm_on_full */
	uint64_t ring_bytes;
	uint64_t max_size_bytes; /* 0: no limit */
	struct tm_alert_rules alerts;
	uint32_t dumps; /* made by itself, at most */
	bool dumps_given;
	bool ring_file;          /* at the limit the oldest events go */
	bool embed_names, keep_args;
	uint64_t linger_ns;
	bool force, quiet, verbose;
	int attach_pid, session_fd; /* -1: not given */
	char **command;             /* NULL when attaching */
	bool done;                  /* --help or --version was answered: nothing to record */
};

enum { TM_OPTIONS_OK = 0, TM_OPTIONS_BAD = -1 };

int tm_options_parse(struct tm_options *options, int argc, char **argv);

#endif
