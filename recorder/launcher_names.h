/* launcher_names.h - the variables by which launchers and batch systems number their processes, each list in order of precedence.
 *
 * Flow:     the program's environment -> guest/process_info.c -> INFO records -> collector/launcher_variables.c, which takes its own environment, too
 */
#ifndef TIDEMARK_RECORDER_LAUNCHER_NAMES_H
#define TIDEMARK_RECORDER_LAUNCHER_NAMES_H

#define TM_RANK_VARIABLES "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK", "PALS_RANKID"
#define TM_LOCAL_RANK_VARIABLES "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK", "PALS_LOCAL_RANKID"
#define TM_WORLD_SIZE_VARIABLES "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE"
#define TM_WORLD_VARIABLES "PMIX_NAMESPACE", "PMI_JOBID", "PALS_APID"
#define TM_TORCHRUN_VARIABLE "TORCHELASTIC_RUN_ID" /* set for its workers; "none" where the run got no name */
#define TM_JOB_VARIABLES "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"
#define TM_STEP_VARIABLES "SLURM_STEP_ID"
/* These number the processes of a step. A batch script has them, too, 0 and the numbers of tasks that were asked for, and all that it starts without srun. */
#define TM_OF_STEP_VARIABLES "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"

#endif
