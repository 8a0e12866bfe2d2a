/* cuda_functions.h - functions of the CUDA driver that put work on a device, or take its memory for themselves, by the numbers that CUPTI gives them.
 *
 * Flow:     the guest listens to them (guest/cuda_work.c) and sends the number; the collector writes the name (collector/gpu_records.c)
 * Rule:     NVIDIA never changes the meaning of a number. Several variants of a function have one name.
 */
#ifndef TIDEMARK_RECORDER_CUDA_FUNCTIONS_H
#define TIDEMARK_RECORDER_CUDA_FUNCTIONS_H

/* X(name, callback id, how its parameters name memory) */
enum tm_cuda_work {
	TM_WORK_KERNEL = 1, /* cuLaunchKernel and its kin */
	TM_WORK_KERNEL_EX,  /* cuLaunchKernelEx */
	TM_WORK_GRAPH,      /* what it uses is not known */
	TM_WORK_TO_DEVICE,  /* first parameter: an address of a device */
	TM_WORK_FROM_DEVICE, /* second parameter */
	TM_WORK_BOTH,        /* first and second */
	TM_WORK_PEER,        /* first and third */
	TM_WORK_SET,         /* first */
	TM_WORK_OTHER,
};
#define TM_CUDA_WORK(X) \
	X("cuLaunchKernel", 307, TM_WORK_KERNEL) X("cuLaunchKernel", 442, TM_WORK_KERNEL) X("cuLaunchKernelEx", 652, TM_WORK_KERNEL_EX) \
	X("cuLaunchKernelEx", 653, TM_WORK_KERNEL_EX) X("cuLaunchCooperativeKernel", 477, TM_WORK_KERNEL) \
	X("cuLaunchCooperativeKernel", 478, TM_WORK_KERNEL) X("cuGraphLaunch", 514, TM_WORK_GRAPH) X("cuGraphLaunch", 515, TM_WORK_GRAPH) \
	X("cuMemcpyHtoD", 276, TM_WORK_TO_DEVICE) X("cuMemcpyHtoDAsync", 277, TM_WORK_TO_DEVICE) X("cuMemcpyHtoD", 397, TM_WORK_TO_DEVICE) \
	X("cuMemcpyHtoDAsync", 421, TM_WORK_TO_DEVICE) X("cuMemcpyDtoH", 278, TM_WORK_FROM_DEVICE) X("cuMemcpyDtoHAsync", 279, TM_WORK_FROM_DEVICE) \
	X("cuMemcpyDtoH", 398, TM_WORK_FROM_DEVICE) X("cuMemcpyDtoHAsync", 422, TM_WORK_FROM_DEVICE) X("cuMemcpyDtoD", 280, TM_WORK_BOTH) \
	X("cuMemcpyDtoDAsync", 281, TM_WORK_BOTH) X("cuMemcpyDtoD", 399, TM_WORK_BOTH) X("cuMemcpyDtoDAsync", 423, TM_WORK_BOTH) \
	X("cuMemcpy", 305, TM_WORK_BOTH) X("cuMemcpyAsync", 306, TM_WORK_BOTH) X("cuMemcpy", 408, TM_WORK_BOTH) X("cuMemcpyAsync", 418, TM_WORK_BOTH) \
	X("cuMemcpyPeer", 318, TM_WORK_PEER) X("cuMemcpyPeerAsync", 319, TM_WORK_PEER) X("cuMemcpyPeerAsync", 426, TM_WORK_PEER) \
	X("cuMemcpy2D", 287, TM_WORK_OTHER) X("cuMemcpy2DUnaligned", 288, TM_WORK_OTHER) X("cuMemcpy2DAsync", 289, TM_WORK_OTHER) \
	X("cuMemcpy3D", 290, TM_WORK_OTHER) X("cuMemcpy3DAsync", 291, TM_WORK_OTHER) X("cuMemcpy2DAsync", 424, TM_WORK_OTHER) \
	X("cuMemcpy3DAsync", 425, TM_WORK_OTHER) X("cuMemcpy2D", 405, TM_WORK_OTHER) X("cuMemcpy3D", 407, TM_WORK_OTHER) \
	X("cuMemsetD8", 249, TM_WORK_SET) X("cuMemsetD16", 250, TM_WORK_SET) X("cuMemsetD32", 251, TM_WORK_SET) X("cuMemsetD2D8", 252, TM_WORK_SET) \
	X("cuMemsetD2D16", 253, TM_WORK_SET) X("cuMemsetD2D32", 254, TM_WORK_SET) X("cuMemsetD8Async", 216, TM_WORK_SET) \
	X("cuMemsetD16Async", 218, TM_WORK_SET) X("cuMemsetD32Async", 220, TM_WORK_SET) X("cuMemsetD8", 411, TM_WORK_SET) X("cuMemsetD16", 412, TM_WORK_SET) \
	X("cuMemsetD32", 413, TM_WORK_SET) X("cuMemsetD8Async", 428, TM_WORK_SET) \
	X("cuMemsetD16Async", 429, TM_WORK_SET) X("cuMemsetD32Async", 430, TM_WORK_SET) X("cuMemsetD2D8Async", 222, TM_WORK_SET) \
	X("cuMemsetD2D16Async", 224, TM_WORK_SET) X("cuMemsetD2D32Async", 226, TM_WORK_SET) X("cuMemsetD2D8", 414, TM_WORK_SET) \
	X("cuMemsetD2D16", 415, TM_WORK_SET) X("cuMemsetD2D32", 416, TM_WORK_SET) X("cuMemsetD2D8Async", 431, TM_WORK_SET) \
	X("cuMemsetD2D16Async", 432, TM_WORK_SET) X("cuMemsetD2D32Async", 433, TM_WORK_SET) X("cuMemcpyPeer", 409, TM_WORK_PEER) \
	X("cuMemcpy3DPeer", 320, TM_WORK_OTHER) X("cuMemcpy3DPeerAsync", 321, TM_WORK_OTHER) X("cuMemcpy3DPeer", 410, TM_WORK_OTHER) \
	X("cuMemcpy3DPeerAsync", 427, TM_WORK_OTHER) X("cuMemcpy2DUnaligned", 406, TM_WORK_OTHER) X("cuMemcpyAtoH", 282, TM_WORK_OTHER) \
	X("cuMemcpyAtoHAsync", 283, TM_WORK_OTHER) X("cuMemcpyAtoD", 284, TM_WORK_OTHER) X("cuMemcpyDtoA", 285, TM_WORK_OTHER) \
	X("cuMemcpyAtoA", 286, TM_WORK_OTHER) X("cuMemcpyHtoA", 292, TM_WORK_OTHER) X("cuMemcpyHtoAAsync", 293, TM_WORK_OTHER) \
	X("cuMemcpyBatchAsync", 776, TM_WORK_OTHER) X("cuMemcpyBatchAsync", 777, TM_WORK_OTHER) X("cuMemcpy3DBatchAsync", 778, TM_WORK_OTHER) \
	X("cuMemcpy3DBatchAsync", 779, TM_WORK_OTHER) X("cuMemcpyBatchAsync", 796, TM_WORK_OTHER) X("cuMemcpyBatchAsync", 797, TM_WORK_OTHER) \
	X("cuMemcpy3DBatchAsync", 798, TM_WORK_OTHER) X("cuMemcpy3DBatchAsync", 799, TM_WORK_OTHER)

/* Functions that take memory for themselves, and are listened to for what they are refused: X(name, callback id) */
#define TM_CUDA_TAKERS(X) \
	X("cuCtxCreate", 235) X("cuCtxCreate", 645) X("cuCtxCreate", 757) X("cuDevicePrimaryCtxRetain", 386) X("cuModuleLoad", 18) \
	X("cuModuleLoadData", 19) X("cuModuleLoadDataEx", 20) X("cuModuleLoadFatBinary", 21) X("cuLibraryLoadData", 678) \
	X("cuLibraryLoadFromFile", 679) X("cuStreamCreate", 124) X("cuStreamCreateWithPriority", 367) X("cuGraphInstantiate", 513) \
	X("cuGraphInstantiate", 578) X("cuGraphInstantiateWithFlags", 643) X("cuGraphInstantiateWithParams", 656) \
	X("cuGraphInstantiateWithParams", 657) X("cuGraphUpload", 580) X("cuGraphUpload", 581)

#endif
