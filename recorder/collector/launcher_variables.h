/* launcher_variables.h - what the job's launcher says about a process in its environment: rank, size, job.
 *
 * Flow:     INFO records of a process (NAME=VALUE), or our own environment -> here -> PROCESS_START, info records, --output
 * The first variable set wins, MPI's own before Slurm's: mpirun inside an allocation can leave SLURM_PROCID at 0 for every rank. But torchrun's workers
 * are numbered by torchrun: srun or mpirun above it, whose variables they inherit, has numbered the torchruns of the nodes. Slurm's numbers count where a
 * step is named.
 */
#ifndef TIDEMARK_RECORDER_COLLECTOR_LAUNCHER_VARIABLES_H
#define TIDEMARK_RECORDER_COLLECTOR_LAUNCHER_VARIABLES_H

#include <stddef.h>
#include <stdint.h>

#define TM_WORLD_NAME_MAX 256
#define TM_WORLD_TEXT_MAX (TM_WORLD_NAME_MAX + 16)

struct tm_launcher {
	int64_t rank, local_rank, world_size;                                          /* -1 unknown */
	char job[64], step[64], world[TM_WORLD_NAME_MAX];                              /* "" unknown; world: what its ranks count in */
	uint8_t rank_place, local_rank_place, world_size_place, job_place, step_place, world_place; /* place in the list of what won, + 1 */
	char of_step[3][24]; /* values of TM_OF_STEP_VARIABLES, until a step is known */
	struct {
		int64_t rank, local_rank, world_size; /* -1 unknown */
		char run[TM_WORLD_NAME_MAX];          /* "" it is none of its workers; "none": its word for each run that got no name */
	} torchrun;                                   /* as it says; what it knows stands above, too */
};
#define TM_LAUNCHER_NONE \
	{ \
		.rank = -1, .local_rank = -1, .world_size = -1, .torchrun = { -1, -1, -1, "" } \
	}

/* Takes "NAME=VALUE" into account, in whatever order they come; other names are ignored. */
void tm_launcher_take(struct tm_launcher *l, const char *assignment, size_t n);
/* The name of what its rank counts in, in `out`, at least TM_WORLD_TEXT_MAX bytes; "" unknown. `trace` has job and step. */
void tm_launcher_world(const struct tm_launcher *l, const struct tm_launcher *trace, char *out);
void tm_launcher_of_environment(struct tm_launcher *l);

#endif
