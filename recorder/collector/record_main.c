/* record_main.c - tidemark-record: runs a command, collects what its guests record, writes the trace.
 *
 *     options -> shared memory -> child (waiting) -> trace file -> child execs
 *     drain, again and again, until the command and its descendants have ended
 *     last pass -> ends, totals, names -> summary -> the command's own exit status
 *
 * See collector.h for the stages between a ring and the file. Whatever happens to us, the program runs on: when a trace cannot be
 * written any more the guests are told to go quiet, and we wait for the command only to pass on its status.
 */
#include "closing.h"
#include "collector.h"
#include "controls.h"
#include "drain.h"
#include "executable.h"
#include "heritage.h"
#include "launch.h"
#include "memory.h"
#include "names.h"
#include "names_reader.h"
#include "output_path.h"
#include "own_stack.h"
#include "own_thread.h"
#include "signals.h"
#include "tell.h"
#include "thread_table.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_OURS 125
#define EXIT_NOT_INVOKED 126
#define EXIT_NOT_FOUND 127
#define READER_NS 20000000u    /* between two looks for one who reads the pipe that the trace goes to */
#define SLEEP_NS 5000000u      /* after a pass that found little */
#define STOP_SETTLES_NS 20000000u /* of all that are continued at once, we may be first */
#define NAMES_MANY 2000u /* addresses: looking their names up takes longer than making a thread */
#define SHORT_NS 100000u       /* not worth falling asleep */
#define AWAKE_AT 128u          /* of 1,024ths of a ring; the bell rings at 256 */
#define SETTLE_NS 200000u      /* while something about processes waits for the next pass */
#define SLOW_NS 1000000000u    /* of a writer that lets us wait: not all that a command left is read before we stop as it did */
#define STANDSTILL_NS 5000000000u /* of one that may never go on */
#define SLEEP_MAX_NS 90000000u /* after many that found nothing */

static struct tm_collector collector;
static struct tm_launch command;
static int command_status = -1; /* wait status, once it has ended */

/* Standard error is the program's own where the program has started us. */
static bool may_talk(const struct tm_collector *c) {
	return c->options.attach_pid < 0 || c->options.verbose || getenv("TIDEMARK_VERBOSE");
}

static int fail(const struct tm_collector *c, const char *sentence) {
	if (may_talk(c)) tm_tell("%s", sentence);
	return EXIT_OURS;
}

static int exit_status(int status) {
	if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
	return WEXITSTATUS(status);
}

static bool is_recorded(pid_t pid) {
	return pid == command.pid || tm_processes_have(&collector, (uint32_t)pid);
}

/* --- the command's end --- */

static void reap_command(void) {
	int status;
	if (command.pid <= 0 || command_status >= 0) return;
	if (waitpid(command.pid, &status, WNOHANG) != command.pid) return;
	if (!WIFEXITED(status) && !WIFSIGNALED(status)) return;
	command_status = status;
	tm_signals_command_ended(command.pid);
}

/* To the kernel it is us whose death ends the command, for the program it is whoever started us. */
static void follow_parent(struct tm_collector *c) {
	int number = tm_heritage_watch(&c->session);
	if (number > 0 && command.pid > 0 && command_status < 0) kill(command.pid, number);
}

/* Stops as the command did, once all is read that it has left. True: it seems to be stopped, and we look again soon. */
static bool follow_stop(enum tm_drained drained) {
	static uint64_t since_ns;
	siginfo_t info = { 0 };
	if (command.pid <= 0 || command_status >= 0) return false;
	bool stopped = waitid(P_PID, (id_t)command.pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == command.pid;
	uint64_t now_ns = stopped ? tm_monotonic_ns() : 0;
	if (!stopped || !since_ns) since_ns = now_ns;
	if (!stopped || drained == TM_DRAINED_MUCH || now_ns - since_ns < STOP_SETTLES_NS) return stopped;
	waitid(P_PID, (id_t)command.pid, &info, WSTOPPED | WNOHANG);
	since_ns = 0;
	tm_signals_stop_like(command.pid, info.si_status);
	return false;
}

static void cry(const char *text) {
	if (write(2, text, strlen(text)) < 0) errno = 0;
}

/* The command waits for the word to begin, which it will never get. */
static _Noreturn void fall_before_the_start(void) {
	cry("tidemark-record: cannot start: out of memory\n");
	if (command.pid > 0) tm_launch_cancel(&command);
	if (collector.writer.path) tm_writer_discard(&collector.writer);
	tm_signals_stop_witness();
	_exit(EXIT_OURS);
}

/* No memory is left: the recording ends here, the program does not. */
static void last_stand(void) {
	int status;
	bool attached = collector.options.attach_pid > 0;
	if (!attached && (command.pid <= 0 || command.go_fd >= 0)) fall_before_the_start();
	if (collector.session.shm) tm_session_close_to_guests(&collector.session);
	if (may_talk(&collector)) cry("tidemark-record: out of memory; the trace ends here, the program runs on\n");
	tm_signals_stop_witness();
	if (attached) _exit(EXIT_OURS);
	if (command_status < 0) {
		while (waitpid(command.pid, &status, 0) < 0 && errno == EINTR) tm_signals_forward(command.pid, is_recorded);
		command_status = status;
	}
	_exit(exit_status(command_status));
}

/* --- the trace's head --- */

static void put_pair(struct tm_bytes *b, const char *key, const char *value) {
	if (value[0]) tm_put_info(b, tm_text_of(key), tm_text_of(value));
}

static void put_number(struct tm_bytes *b, const char *key, uint64_t value) {
	char text[32];
	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	put_pair(b, key, text);
}

static void put_command(struct tm_bytes *b, const struct tm_options *o) {
	char *text = tm_memory_new(1, 1);
	size_t n = 0;
	for (size_t i = 0; o->command && o->command[i] && (i == 0 || o->keep_args); i++) {
		size_t bytes = strlen(o->command[i]);
		text = tm_memory_resize(text, n + bytes + 2, 1);
		if (i) text[n++] = ' ';
		memcpy(text + n, o->command[i], bytes);
		n += bytes;
	}
	if (n) tm_put_info(b, tm_text_of("command"), (struct tm_text){ text, n });
	free(text);
}

/* Written at once, so that even a recorder that is killed right away leaves a trace that says what it is. */
static int write_head(struct tm_collector *c) {
	static const char *const stacks[] = { [TM_STACKS_OFF] = "off", [TM_STACKS_UNWIND] = "unwind", [TM_STACKS_FP] = "fp" };
	const struct tm_options *o = &c->options;
	struct tm_bytes b = TM_BYTES_INIT;
	struct utsname machine;
	put_pair(&b, "tool_version", TM_TOOL_VERSION);
	put_number(&b, "start_unix_ns", c->timebase.start_unix_ns);
	put_pair(&b, "clock", c->timebase.clock == TM_CLOCK_TSC ? "tsc" : "monotonic");
	put_pair(&b, "host", c->host);
	put_pair(&b, "job", c->launcher.job);
	put_pair(&b, "step", c->launcher.step);
	put_number(&b, "sample_bytes", o->sample_bytes);
	put_pair(&b, "stacks", stacks[o->stacks]);
	put_number(&b, "max_depth", o->max_depth);
	put_pair(&b, "mappings", o->mappings ? "on" : "off");
	if (uname(&machine) == 0) put_pair(&b, "arch", machine.machine);
	put_number(&b, "page_bytes", (uint64_t)sysconf(_SC_PAGESIZE));
	put_command(&b, o);
	int result = tm_writer_add_chunk(&c->writer, TM_CHUNK_META, b.data, b.size) != 0 ? -ENOMEM : tm_writer_flush(&c->writer);
	tm_bytes_release(&b);
	return result;
}

/* Of a pipe that nobody reads yet, open() would wait and let no signal end that. Returns a descriptor that keeps the reader until it is closed, -1: none is
 * needed, or -2: we are asked to end, or whom we record has ended. */
static int wait_for_reader(const struct tm_collector *c, const char *path) {
	struct pollfd program = { c->options.attach_pid > 0 ? c->options.session_fd : command.error_fd, 0, 0 };
	struct stat file = { 0 };
	if (!c->options.force) return -1;
	for (;;) {
		int fd = stat(path, &file) == 0 && S_ISFIFO(file.st_mode) ? open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
		if (fd >= 0 || !S_ISFIFO(file.st_mode) || errno != ENXIO) return fd;
		if (tm_signals_end_asked_within(READER_NS) || poll(&program, 1, 0) > 0) return -2;
	}
}

/* 0, or -1: said why. */
static int open_trace(struct tm_collector *c, int pid) {
	char error[PATH_MAX + 256], directory[PATH_MAX];
	char *path = tm_output_path_expand(c->options.output, pid, error, sizeof error);
	if (!path) {
		fail(c, error);
		return -1;
	}
	int result = tm_output_path_make_directories(path, directory, sizeof directory);
	if (result < 0) {
		snprintf(error, sizeof error, "cannot make directory '%s': %s", directory, strerror(-result));
		fail(c, error);
		free(path);
		return -1;
	}
	if (tm_heritage_is_our_own(path)) {
		snprintf(error, sizeof error, "cannot create '%s': no such descriptor was given to us", path);
		fail(c, error);
		free(path);
		return -1;
	}
	int reader = wait_for_reader(c, path);
	result = reader == -2 ? -EINTR : tm_writer_open(&c->writer, path, c->options.force);
	if (reader >= 0) close(reader);
	if (result < 0) {
		const char *why = result == -EBUSY ? "another recorder is writing it" : reader == -2 ? "nobody has opened it to read" : strerror(-result);
		const char *hint = result == -EEXIST ? " (--force overwrites it)" : "";
		snprintf(error, sizeof error, "cannot create '%s': %s%s", path, why, hint);
		fail(c, error);
		if (reader == -2) free(path);
		return -1;
	}
	result = write_head(c);
	if (result == 0) return 0;
	snprintf(error, sizeof error, "cannot write '%s': %s", path, strerror(-result));
	fail(c, error);
	tm_writer_discard(&c->writer);
	return -1;
}

/* --- recording --- */

/* Nothing is recorded from here on; the program runs. `note` goes into the trace where that can still be written. */
static void stop_recording(struct tm_collector *c, const char *why, const char *kind, const char *note) {
	if (c->stopped) return;
	if (note) {
		tm_drain_pass(c);
		tm_group_add_note(c->group, 0, tm_timebase_ticks(&c->timebase), kind, note);
	}
	tm_session_close_to_guests(&c->session);
	c->stopped = why;
	tm_sampler_stop(&c->sampler); /* what it would read on would be kept for the end, however long the program runs */
	tm_drain_close_group(c, true);
}

/* The program may run on for days, and who looks at the trace shall not take it for one that is written. */
static void give_up_trace(struct tm_collector *c) {
	if (c->stopped) return;
	stop_recording(c, "cut off", NULL, NULL);
	tm_writer_give_up(&c->writer);
	if (may_talk(c))
		tm_tell("cannot write '%s' any more: %s; what the program does from here on is not recorded", c->writer.path,
			strerror(c->writer.error));
}

static void check_limits(struct tm_collector *c) {
	uint64_t limit = c->options.ring_file ? 0 : c->options.max_size_bytes;
	if (c->writer.error) give_up_trace(c);
	if (limit && (c->writer.bytes >= limit || c->encoder.is_full))
		stop_recording(c, "stopped by --max-size", TM_NOTE_STOPPED_BY_SIZE,
			       "recording stopped when the trace reached --max-size; the program ran on");
}

static bool command_ended(const struct tm_collector *c) {
	if (c->options.attach_pid > 0) return true; /* every process of the tree is waited for alike */
	return command_status >= 0;
}

/* True when nobody is left to record, or we have waited long enough. `read`: everything was that the command left. */
static bool is_over(struct tm_collector *c, uint64_t ended_ns, bool read) {
	bool attached = c->options.attach_pid > 0;
	if (!command_ended(c)) return false;
	tm_processes_check(c, !attached);
	if (!attached && read && !tm_processes_any_alive(c)) tm_processes_settle(c);
	if (tm_processes_unsettled(c)) return false;
	if (!tm_processes_any_alive(c)) return !tm_signals_pending();
	if (attached) return false;
	return tm_monotonic_ns() - ended_ns > c->options.linger_ns || tm_signals_asked_to_end() > 0;
}

/* The program has ended, nobody takes what it left, and somebody has asked us to end since: the trace ends here. */
static _Noreturn void give_up(struct tm_collector *c) {
	tm_session_close_to_guests(&c->session);
	if (may_talk(c)) tm_tell("'%s' takes nothing any more: its end is missing", c->writer.path);
	tm_signals_stop_witness();
	reap_command();
	_exit(exit_status(command_status));
}

/* A writer that hangs, as at a pipe that nobody reads, keeps neither signals nor stops from who they are for. The command is not reaped: its end is told
 * when there is room. */
static void while_waiting(struct tm_collector *c, uint64_t waited_ns) {
	static unsigned asked;
	siginfo_t info = { 0 };
	if (command.pid <= 0) return;
	bool ended = command_status >= 0 ||
		     (waitid(P_PID, (id_t)command.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == command.pid);
	if (ended) tm_signals_command_ended(command.pid);
	tm_signals_forward(ended ? 0 : command.pid, is_recorded);
	if (!ended && waited_ns > SLOW_NS) follow_stop(TM_DRAINED_NOTHING);
	if (waited_ns < STANDSTILL_NS) asked = tm_signals_asked_to_end();
	else if (ended && tm_signals_asked_to_end() > asked) give_up(c);
}

static void sleep_a_while(struct tm_collector *c, uint32_t doorbell, uint64_t ns) {
	struct tm_shm *shm = c->session.shm;
	atomic_store(&shm->sleeping, 1);
	if (c->stopped || !tm_drain_is_pressing(c)) tm_futex_wait(&shm->doorbell, doorbell, ns);
	atomic_store(&shm->sleeping, 0);
}

/* The program rings the bell where it runs, and the one that wakes would take that processor from it if the others are busy: it waits there for its turn
 * instead, or for another processor, as a part of the buffers is free still. Not where somebody gave us another policy. */
static void wait_for_turns(void) {
	struct sched_param none = { 0 };
	if (sched_getscheduler(0) == SCHED_OTHER) sched_setscheduler(0, SCHED_BATCH, &none);
}

/* How long until a ring is half as full as one whose thread rings the bell, if it goes on as between the last two looks. To be woken costs the program a system
 * call and an interrupt of another processor, 30 us for each quarter of a ring; to wake by ourselves costs it nothing. */
static uint64_t forecast_ns(const struct tm_collector *c, uint64_t before_ns, uint64_t look_ns) {
	uint64_t filled_ns = look_ns - before_ns, since_ns = tm_monotonic_ns() - look_ns;
	uint64_t full_ns = c->fullest ? filled_ns * AWAKE_AT / c->fullest : SLEEP_NS;
	return full_ns > SLEEP_NS ? SLEEP_NS : full_ns > since_ns ? full_ns - since_ns : 0;
}

static void record(struct tm_collector *c) {
	wait_for_turns();
	uint64_t idle_ns = SLEEP_NS, ended_ns = 0, look_ns = tm_monotonic_ns();
	for (;;) {
		/* Read first: what rings the bell from here on ends the sleep below at once. */
		uint32_t doorbell = atomic_load(&c->session.shm->doorbell);
		reap_command();
		if (command_status >= 0 && !ended_ns) {
			ended_ns = tm_monotonic_ns();
			tm_process_root_ended(c, (uint32_t)command.pid, command_status);
		}
		uint64_t before_ns = look_ns;
		look_ns = tm_monotonic_ns();
		enum tm_drained drained = c->stopped ? TM_DRAINED_NOTHING : tm_drain_pass(c);
		check_limits(c);
		if (command_status < 0) tm_signals_lend_terminal(command.pid); /* first: a stop that is passed on stays one */
		tm_signals_forward(command_status >= 0 ? 0 : command.pid, is_recorded);
		follow_parent(c);
		bool is_stopping = follow_stop(drained);
		tm_processes_check(c, false);
		tm_drain_housekeeping(c);
		tm_dumps_turn(c);
		tm_drain_close_group(c, false);
		tm_names_ahead_look(c);
		tm_aside_look(c, look_ns);
		if (is_over(c, ended_ns, drained != TM_DRAINED_MUCH)) return;
		uint64_t forecast = forecast_ns(c, before_ns, look_ns);
		if (drained == TM_DRAINED_MUCH && forecast < SHORT_NS) continue;
		idle_ns = drained != TM_DRAINED_NOTHING || ended_ns ? SLEEP_NS : idle_ns * 2 < SLEEP_MAX_NS ? idle_ns * 2 : SLEEP_MAX_NS;
		uint64_t pause_ns = is_stopping ? SLEEP_NS : drained == TM_DRAINED_NOTHING || ended_ns ? idle_ns : forecast;
		sleep_a_while(c, doorbell, tm_processes_unsettled(c) || tm_stats_pending(c) ? SETTLE_NS : pause_ns);
	}
}

/* What only reading events needs, and the threads that do it. */
static void *give_back(void *argument) {
	struct tm_collector *c = argument;
	tm_drain_release(c);
	tm_encoder_release(&c->encoder);
	tm_python_stacks_release(&c->python);
	tm_stack_tree_keep_frames(&c->stacks);
	return NULL;
}

static void finish_events(struct tm_collector *c) {
	tm_encoder_stop(&c->encoder);
	tm_closing_write_left_out(c);
}

static void *finish_and_give_back(void *argument) {
	finish_events(argument);
	return give_back(argument);
}

/* The last events take their time to be written, and pages to be given back, and the user waits for it: that is done beside the names. Not where what did not
 * fit has to be told before them, nor where it is known that nothing can be written. */
static void write_names(struct tm_collector *c) {
	pthread_t behind;
	bool events_first = c->options.max_size_bytes || c->writer.error;
	if (events_first) finish_events(c);
	uint64_t first_string_id = c->strings.count + 1;
	bool runs = c->stacks.frame_count >= NAMES_MANY && tm_own_thread_start(&behind, events_first ? give_back : finish_and_give_back, c);
	if (!events_first && !runs) finish_events(c);
	if ((runs && !events_first) || !c->writer.error) tm_closing_write_names(c, first_string_id);
	if (runs) pthread_join(behind, NULL);
	else give_back(c);
}

static void finish(struct tm_collector *c) {
	tm_aside_lift(c);
	tm_signals_dismiss_witness();
	tm_encoder_expect_end(&c->encoder);
	if (!c->stopped) tm_drain_finish(c);
	tm_session_close_to_guests(&c->session);
	tm_processes_finish(c);
	if (!c->stopped) tm_drain_finish(c); /* rings of those who died meanwhile */
	tm_sampler_stop(&c->sampler);
	tm_threads_take_names(c, true);
	tm_names_ahead_last_look(c);
	tm_drain_close_group(c, true);
	tm_timebase_add_knot(&c->timebase);
	write_names(c);
	tm_closing_write_end(c);
	tm_signals_stop_witness();
	tm_writer_follow(&c->writer);
	tm_closing_print_summary(c);
	tm_writer_close(&c->writer);
	tm_closing_print_failure(c);
	tm_dumps_wait(&c->dumps, &c->writer);
}

static void release(struct tm_collector *c) {
	give_back(c);
	if (c->tally) tm_tally_free(c->tally);
	tm_flight_free(c->flight);
	tm_sampler_release(&c->sampler);
	tm_processes_release(&c->processes);
	tm_modules_release(&c->modules);
	tm_stack_tree_release(&c->stacks);
	tm_interned_release(c);
	tm_signals_wake_nobody();
	tm_session_release(&c->session);
	tm_aside_release(&c->aside);
	tm_names_ahead_release(&c->ahead); /* last, as large ones take their time to end */
	free(c->writer.path);
}

/* --- order of things --- */

static int fail_ring(struct tm_collector *c) {
	char error[PATH_MAX + 256];
	const char *why = errno ? strerror(errno) : "it is no regular file";
	snprintf(error, sizeof error, "cannot keep '%s' within --max-size: %s", c->writer.path, why);
	return fail(c, error);
}

static int start_threads(struct tm_collector *c, uint32_t root_pid) {
	if (c->options.ring_file && !(c->flight = tm_flight_new(&c->writer, c->options.max_size_bytes))) return fail_ring(c);
	tm_encoder_start(&c->encoder, &c->writer);
	c->encoder.flight = c->flight;
	c->encoder.limit_bytes = c->options.ring_file ? 0 : c->options.max_size_bytes;
	c->encoder.dumps = &c->dumps;
	c->dumps.names = c->options.embed_names;
	c->dumps.quiet = !may_talk(c);
	c->dumps.shm = c->session.shm;
	tm_sampler_start(&c->sampler, &c->timebase, c->options.interval_ms, &c->session, root_pid);
	tm_stack_tree_init(&c->stacks);
	c->while_waiting = while_waiting;
	return tm_drain_start(c) == 0 ? 0 : fail(c, "cannot start: out of memory");
}

static int fail_command(const struct tm_collector *c, int error) {
	char text[PATH_MAX + 256];
	snprintf(text, sizeof text, "cannot run '%s': %s", c->options.command[0], strerror(error));
	fail(c, text);
	return error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_INVOKED;
}

/* 0: the command runs; else our exit status. */
static int start_command(struct tm_collector *c, int argc, char **argv) {
	char error[PATH_MAX + 256];
	sigset_t early;
	tm_signals_start_witness(argc, argv);
	if (tm_launch_prepare(&command, &c->session, c->options.command, error, sizeof error) != 0) return fail(c, error);
	if (command.find_error) return fail_command(c, command.find_error); /* before an older recording is gone for nothing */
	if (open_trace(c, command.pid) != 0) return EXIT_OURS;
	tm_signals_take_early(&early);
	tm_signals_handle(&c->session.shm->doorbell, false);
	if (start_threads(c, (uint32_t)command.pid) != 0) return EXIT_OURS;
	tm_process_add_root(c, (uint32_t)command.pid, command.path, c->options.command, command.class);
	int result = tm_launch_go(&command, &early);
	if (result == 0) {
		tm_heritage_let_go(c->writer.fd);
		if (c->options.verbose) tm_tell("recording process %d to '%s'", (int)command.pid, c->writer.path);
		return 0;
	}
	command.pid = -1;
	tm_encoder_stop(&c->encoder);
	tm_writer_discard(&c->writer);
	return fail_command(c, result);
}

/* The program that was preloaded without us waits for the session's path on a pipe. */
static int start_attached(struct tm_collector *c) {
	char line[sizeof c->session.path + 1], exe[PATH_MAX], link[64];
	uint32_t pid = (uint32_t)c->options.attach_pid;
	if (open_trace(c, c->options.attach_pid) != 0) return EXIT_OURS;
	if (!may_talk(c)) tm_heritage_let_go_of_errors(c->writer.fd);
	tm_signals_handle(&c->session.shm->doorbell, true);
	if (start_threads(c, pid) != 0) return EXIT_OURS;
	snprintf(link, sizeof link, "/proc/%u/exe", pid);
	ssize_t n = readlink(link, exe, sizeof exe - 1);
	exe[n > 0 ? n : 0] = 0;
	tm_process_add_root(c, pid, exe, NULL, TM_EXEC_NATIVE)->is_root = false;
	int length = snprintf(line, sizeof line, "%s\n", c->session.path);
	bool told = write(c->options.session_fd, line, (size_t)length) == length;
	close(c->options.session_fd);
	if (told) return 0;
	tm_encoder_stop(&c->encoder);
	tm_writer_discard(&c->writer); /* it has waited long enough, and runs on unrecorded */
	return fail(c, "cannot tell the program where its session is");
}

static void know_ourselves(struct tm_collector *c) {
	tm_memory_on_exhausted(last_stand);
	tm_launcher_of_environment(&c->launcher);
	if (gethostname(c->host, sizeof c->host - 1) != 0) c->host[0] = 0;
	if (c->options.attach_pid > 0 && !c->options.verbose) c->options.quiet = true;
}

/* What was asked for and stands in standard output: `result`, or `unwritten`, and why. */
static int finish_output(int result, int unwritten) {
	if (fflush(stdout) == 0 && !ferror(stdout)) return result;
	fprintf(stderr, "tidemark-record: cannot write standard output: %s\n", strerror(errno));
	return unwritten;
}

/* Where a standard stream is closed, the session or the trace would be opened in its place, and our messages written into it. What holds the place can be
 * neither read nor written, as what is closed, and the command finds it closed. */
static void hold_closed_streams(void) {
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0) open("/", O_PATH | O_CLOEXEC);
}

static int run(int argc, char **argv) {
	struct tm_collector *c = &collector;
	char error[512];
	hold_closed_streams();
	if (argc > 1 && !strcmp(argv[1], "names")) return finish_output(tm_names_command(argc - 1, argv + 1), EXIT_FAILURE);
	if (argc > 1 && !strcmp(argv[1], "dump")) return finish_output(tm_dump_command(argc - 1, argv + 1), EXIT_FAILURE);
	if (argc == 2 && !strcmp(argv[1], TM_AHEAD_COMMAND)) tm_names_reader_serve(0);
	if (argc == 2 && !strcmp(argv[1], TM_LOOKUP_COMMAND)) tm_names_reader_look_up(0);
	tm_heritage_take();
	if (tm_options_parse(&c->options, argc, argv) != TM_OPTIONS_OK) return EXIT_OURS;
	if (c->options.done) return finish_output(0, EXIT_OURS);
	know_ourselves(c);
	tm_signals_hold();
	tm_timebase_start(&c->timebase);
	if (tm_session_open(&c->session, &c->options, &c->timebase, error, sizeof error) != 0) return fail(c, error);
	int result = c->options.attach_pid > 0 ? start_attached(c) : start_command(c, argc, argv);
	if (result == 0) {
		record(c);
		finish(c);
		if (command_status >= 0) result = exit_status(command_status);
	} else {
		tm_launch_cancel(&command);
		tm_signals_stop_witness();
		tm_encoder_stop(&c->encoder);
		tm_sampler_stop(&c->sampler);
	}
	release(c);
	return result;
}

int main(int argc, char **argv) {
	return tm_own_stack_run(run, argc, argv);
}
