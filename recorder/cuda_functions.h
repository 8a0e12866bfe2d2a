/* cuda_functions.h - functions of the CUDA driver that put work on a device, or take its memory for themselves, by the numbers that CUPTI gives them.
 *
 * Flow:     the guest listens to them (guest/cuda_work.c) and sends the number; the collector writes the name (collector/gpu_records.c)
 * Rule:     NVIDIA never changes the meaning of a number. Several variants of a function have one name. tests/integration/test_gpu_headers.py compares
 *           names and numbers with the headers that there are, and says which functions of the driver are left alone, and why.
 */
#ifndef TIDEMARK_RECORDER_CUDA_FUNCTIONS_H
#define TIDEMARK_RECORDER_CUDA_FUNCTIONS_H

#define TM_CUDA_IDS 1024u /* numbers are below */

/* How the parameters of a function name the memory that it uses. Host memory may be managed memory, so its address counts as well. */
enum tm_cuda_work {
	TM_WORK_KERNEL = 1,
	TM_WORK_COOPERATIVE, /* cuLaunchCooperativeKernel: its parameters are never packed into a buffer */
	TM_WORK_KERNEL_EX,  /* cuLaunchKernelEx */
	TM_WORK_GRAPH,      /* what it uses is not known */
	TM_WORK_UNTOLD,     /* neither: kernels whose parameters went another way */
	TM_WORK_FIRST,      /* the first parameter is an address */
	TM_WORK_SECOND,
	TM_WORK_THIRD,
	TM_WORK_BOTH,       /* the first and the second one are */
	TM_WORK_PEER,       /* the first and the third one */
	TM_WORK_2D,         /* the first one points to a CUDA_MEMCPY2D */
	TM_WORK_3D,         /* ... CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER */
	TM_WORK_BATCH,      /* the first two point to addresses, the fourth is how many */
	TM_WORK_3D_BATCH,   /* the first is how many, the second points to them (CUDA_MEMCPY3D_BATCH_OP) */
	TM_WORK_3D_ONE,     /* the first points to one of them */
	TM_WORK_VALUES,     /* the second is how many, the third points to them (CUstreamBatchMemOpParams) */
};

/* X(name, callback id, one of those) */
#define TM_CUDA_WORK(X) \
	X("cuLaunchKernel", 307, TM_WORK_KERNEL) X("cuLaunchKernel", 442, TM_WORK_KERNEL) X("cuLaunchKernelEx", 652, TM_WORK_KERNEL_EX) \
	X("cuLaunchKernelEx", 653, TM_WORK_KERNEL_EX) X("cuLaunchCooperativeKernel", 477, TM_WORK_COOPERATIVE) \
	X("cuLaunchCooperativeKernel", 478, TM_WORK_COOPERATIVE) X("cuLaunchCooperativeKernelMultiDevice", 480, TM_WORK_UNTOLD) \
	X("cuLaunch", 115, TM_WORK_UNTOLD) X("cuLaunchGrid", 116, TM_WORK_UNTOLD) X("cuLaunchGridAsync", 117, TM_WORK_UNTOLD) \
	X("cuGraphLaunch", 514, TM_WORK_GRAPH) X("cuGraphLaunch", 515, TM_WORK_GRAPH) \
	X("cuMemcpyHtoD", 276, TM_WORK_BOTH) X("cuMemcpyHtoDAsync", 277, TM_WORK_BOTH) X("cuMemcpyHtoD", 397, TM_WORK_BOTH) \
	X("cuMemcpyHtoDAsync", 421, TM_WORK_BOTH) X("cuMemcpyDtoH", 278, TM_WORK_BOTH) X("cuMemcpyDtoHAsync", 279, TM_WORK_BOTH) \
	X("cuMemcpyDtoH", 398, TM_WORK_BOTH) X("cuMemcpyDtoHAsync", 422, TM_WORK_BOTH) X("cuMemcpyDtoD", 280, TM_WORK_BOTH) \
	X("cuMemcpyDtoDAsync", 281, TM_WORK_BOTH) X("cuMemcpyDtoD", 399, TM_WORK_BOTH) X("cuMemcpyDtoDAsync", 423, TM_WORK_BOTH) \
	X("cuMemcpy", 305, TM_WORK_BOTH) X("cuMemcpyAsync", 306, TM_WORK_BOTH) X("cuMemcpy", 408, TM_WORK_BOTH) X("cuMemcpyAsync", 418, TM_WORK_BOTH) \
	X("cuMemcpyWithAttributesAsync", 837, TM_WORK_BOTH) X("cuMemcpyWithAttributesAsync", 838, TM_WORK_BOTH) \
	X("cuMemcpyPeer", 318, TM_WORK_PEER) X("cuMemcpyPeerAsync", 319, TM_WORK_PEER) X("cuMemcpyPeer", 409, TM_WORK_PEER) \
	X("cuMemcpyPeerAsync", 426, TM_WORK_PEER) \
	X("cuMemcpy2D", 287, TM_WORK_2D) X("cuMemcpy2DUnaligned", 288, TM_WORK_2D) X("cuMemcpy2DAsync", 289, TM_WORK_2D) X("cuMemcpy2D", 405, TM_WORK_2D) \
	X("cuMemcpy2DUnaligned", 406, TM_WORK_2D) X("cuMemcpy2DAsync", 424, TM_WORK_2D) \
	X("cuMemcpy3D", 290, TM_WORK_3D) X("cuMemcpy3DAsync", 291, TM_WORK_3D) X("cuMemcpy3D", 407, TM_WORK_3D) X("cuMemcpy3DAsync", 425, TM_WORK_3D) \
	X("cuMemcpy3DPeer", 320, TM_WORK_3D) X("cuMemcpy3DPeerAsync", 321, TM_WORK_3D) X("cuMemcpy3DPeer", 410, TM_WORK_3D) \
	X("cuMemcpy3DPeerAsync", 427, TM_WORK_3D) \
	X("cuMemcpyAtoH", 282, TM_WORK_FIRST) X("cuMemcpyAtoHAsync", 283, TM_WORK_FIRST) X("cuMemcpyAtoD", 284, TM_WORK_FIRST) \
	X("cuMemcpyAtoH", 403, TM_WORK_FIRST) X("cuMemcpyAtoHAsync", 420, TM_WORK_FIRST) X("cuMemcpyAtoD", 401, TM_WORK_FIRST) \
	X("cuMemcpyDtoA", 285, TM_WORK_THIRD) X("cuMemcpyHtoA", 292, TM_WORK_THIRD) X("cuMemcpyHtoAAsync", 293, TM_WORK_THIRD) \
	X("cuMemcpyDtoA", 400, TM_WORK_THIRD) X("cuMemcpyHtoA", 402, TM_WORK_THIRD) X("cuMemcpyHtoAAsync", 419, TM_WORK_THIRD) \
	X("cuMemcpyAtoA", 286, TM_WORK_FIRST) X("cuMemcpyAtoA", 404, TM_WORK_FIRST) \
	X("cuMemcpyBatchAsync", 776, TM_WORK_BATCH) X("cuMemcpyBatchAsync", 777, TM_WORK_BATCH) X("cuMemcpyBatchAsync", 796, TM_WORK_BATCH) \
	X("cuMemcpyBatchAsync", 797, TM_WORK_BATCH) X("cuMemcpy3DBatchAsync", 778, TM_WORK_3D_BATCH) X("cuMemcpy3DBatchAsync", 779, TM_WORK_3D_BATCH) \
	X("cuMemcpy3DBatchAsync", 798, TM_WORK_3D_BATCH) X("cuMemcpy3DBatchAsync", 799, TM_WORK_3D_BATCH) \
	X("cuMemcpy3DWithAttributesAsync", 839, TM_WORK_3D_ONE) X("cuMemcpy3DWithAttributesAsync", 840, TM_WORK_3D_ONE) \
	X("cuMemsetD8", 249, TM_WORK_FIRST) X("cuMemsetD16", 250, TM_WORK_FIRST) X("cuMemsetD32", 251, TM_WORK_FIRST) X("cuMemsetD2D8", 252, TM_WORK_FIRST) \
	X("cuMemsetD2D16", 253, TM_WORK_FIRST) X("cuMemsetD2D32", 254, TM_WORK_FIRST) X("cuMemsetD8Async", 216, TM_WORK_FIRST) \
	X("cuMemsetD16Async", 218, TM_WORK_FIRST) X("cuMemsetD32Async", 220, TM_WORK_FIRST) X("cuMemsetD2D8Async", 222, TM_WORK_FIRST) \
	X("cuMemsetD2D16Async", 224, TM_WORK_FIRST) X("cuMemsetD2D32Async", 226, TM_WORK_FIRST) X("cuMemsetD8", 411, TM_WORK_FIRST) \
	X("cuMemsetD16", 412, TM_WORK_FIRST) X("cuMemsetD32", 413, TM_WORK_FIRST) X("cuMemsetD2D8", 414, TM_WORK_FIRST) \
	X("cuMemsetD2D16", 415, TM_WORK_FIRST) X("cuMemsetD2D32", 416, TM_WORK_FIRST) X("cuMemsetD8Async", 428, TM_WORK_FIRST) \
	X("cuMemsetD16Async", 429, TM_WORK_FIRST) X("cuMemsetD32Async", 430, TM_WORK_FIRST) X("cuMemsetD2D8Async", 431, TM_WORK_FIRST) \
	X("cuMemsetD2D16Async", 432, TM_WORK_FIRST) X("cuMemsetD2D32Async", 433, TM_WORK_FIRST) \
	X("cuStreamWaitValue32", 458, TM_WORK_SECOND) X("cuStreamWaitValue32", 459, TM_WORK_SECOND) X("cuStreamWaitValue32", 659, TM_WORK_SECOND) \
	X("cuStreamWaitValue32", 660, TM_WORK_SECOND) X("cuStreamWaitValue64", 473, TM_WORK_SECOND) X("cuStreamWaitValue64", 474, TM_WORK_SECOND) \
	X("cuStreamWaitValue64", 661, TM_WORK_SECOND) X("cuStreamWaitValue64", 662, TM_WORK_SECOND) X("cuStreamWriteValue32", 460, TM_WORK_SECOND) \
	X("cuStreamWriteValue32", 461, TM_WORK_SECOND) X("cuStreamWriteValue32", 663, TM_WORK_SECOND) X("cuStreamWriteValue32", 664, TM_WORK_SECOND) \
	X("cuStreamWriteValue64", 475, TM_WORK_SECOND) X("cuStreamWriteValue64", 476, TM_WORK_SECOND) X("cuStreamWriteValue64", 665, TM_WORK_SECOND) \
	X("cuStreamWriteValue64", 666, TM_WORK_SECOND) X("cuStreamBatchMemOp", 462, TM_WORK_VALUES) X("cuStreamBatchMemOp", 463, TM_WORK_VALUES) \
	X("cuStreamBatchMemOp", 667, TM_WORK_VALUES) X("cuStreamBatchMemOp", 668, TM_WORK_VALUES)

/* Functions that take memory for themselves, and are listened to for what they are refused: X(name, callback id) */
#define TM_CUDA_TAKERS(X) \
	X("cuCtxCreate", 235) X("cuCtxCreate", 645) X("cuCtxCreate", 757) X("cuDevicePrimaryCtxRetain", 386) X("cuGreenCtxCreate", 743) \
	X("cuModuleLoad", 18) X("cuModuleLoadData", 19) X("cuModuleLoadDataEx", 20) X("cuModuleLoadFatBinary", 21) X("cuModuleGetFunction", 23) \
	X("cuLibraryLoadData", 678) X("cuLibraryLoadFromFile", 679) X("cuLibraryGetModule", 682) X("cuKernelGetFunction", 683) X("cuFuncLoad", 742) \
	X("cuLinkCreate", 362) X("cuLinkCreate", 381) X("cuLinkAddData", 363) X("cuLinkAddData", 382) X("cuLinkAddFile", 364) X("cuLinkAddFile", 383) \
	X("cuLinkComplete", 365) X("cuStreamCreate", 124) X("cuStreamCreateWithPriority", 367) X("cuGreenCtxStreamCreate", 758) X("cuEventCreate", 118) \
	X("cuGraphInstantiate", 513) X("cuGraphInstantiate", 578) X("cuGraphInstantiateWithFlags", 643) X("cuGraphInstantiateWithParams", 656) \
	X("cuGraphInstantiateWithParams", 657) X("cuGraphUpload", 580) X("cuGraphUpload", 581) X("cuGraphExecUpdate", 561) X("cuGraphExecUpdate", 696) \
	X("cuCtxSetLimit", 136) X("cuCtxEnablePeerAccess", 313) X("cuMemSetAccess", 553) X("cuMemPoolCreate", 607) X("cuMemPoolSetAccess", 605) \
	X("cuMemPoolImportFromShareableHandle", 614) X("cuImportExternalMemory", 485) X("cuMulticastCreate", 706) X("cuMulticastBindMem", 708) \
	X("cuMulticastBindMem", 820) X("cuMulticastBindAddr", 709) X("cuMulticastBindAddr", 821) X("cuMemPrefetchAsync", 467) X("cuMemPrefetchAsync", 468) \
	X("cuMemPrefetchAsync", 716) X("cuMemPrefetchAsync", 717) X("cuMemMapArrayAsync", 584) X("cuMemMapArrayAsync", 585)

#endif
