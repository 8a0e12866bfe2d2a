/* gpu_libraries.h - libraries that take memory of a device for themselves, and how a stack shows that one of them asked.
 *
 * Used by:  analyzer/gpu_sites.c, which fills gpu_site.library: the first row that fits the innermost frame that any row fits.
 * Module:   how the file name of the frame's module begins; "" any.
 * Function: what the function's name contains, at the begin of a word; "" any. Both must fit.
 * Ranks:    rows of TM_GPU_LIBRARIES come first, wherever on the stack they fit. TM_GPU_ALLOCATORS are like them, except in the
 *           allocator's own heap (kind tensor), where every block would have it. TM_GPU_FRAMEWORKS fit only where nothing else does.
 */
#ifndef TIDEMARK_SCHEMA_GPU_LIBRARIES_H
#define TIDEMARK_SCHEMA_GPU_LIBRARIES_H

/* clang-format off */

/* X(name, module, function) */
#define TM_GPU_LIBRARIES(X) \
	X("NCCL", "libnccl", "") X("NCCL", "", "nccl") \
	X("NVSHMEM", "libnvshmem", "") X("NVSHMEM", "", "nvshmem") \
	X("cuDNN", "libcudnn", "") X("cuDNN", "", "cudnn") \
	X("cuBLAS", "libcublas", "") X("cuBLAS", "", "cublas") X("cuBLAS", "", "at::cuda::blas::") X("cuBLAS", "", "getCUDABlasLtWorkspace") \
	X("cuBLAS", "", "getCurrentCUDABlasHandle") X("cuBLAS", "", "getNewWorkspace") X("cuBLAS", "", "getNewCUDABlasLtWorkspace") \
	X("cuFFT", "libcufft", "") X("cuFFT", "", "cufft") \
	X("cuSPARSE", "libcusparse", "") X("cuSPARSE", "", "cusparse") \
	X("cuSOLVER", "libcusolver", "") X("cuSOLVER", "", "cusolver") X("MAGMA", "", "magma_") \
	X("cuRAND", "libcurand", "") X("cuRAND", "", "curand") \
	X("cuTENSOR", "libcutensor", "") X("cuTENSOR", "", "cutensor") \
	X("TensorRT", "libnvinfer", "") X("TensorRT", "", "nvinfer1::") \
	X("CUB", "", "cub::") X("Thrust", "", "thrust::")

#define TM_GPU_ALLOCATORS(X) \
	X("PyTorch's caching allocator", "libc10_cuda", "") X("PyTorch's caching allocator", "", "c10::cuda::CUDACachingAllocator") \
	X("RMM", "librmm", "") X("RMM", "", "rmm::") X("CuPy", "", "cupy") \
	X("TensorFlow's BFC allocator", "", "tsl::BFCAllocator") X("XLA", "", "xla::")

#define TM_GPU_FRAMEWORKS(X) \
	X("PyTorch", "libtorch", "") X("PyTorch", "libc10", "") X("TensorFlow", "libtensorflow", "") X("Triton", "libtriton", "")

/* clang-format on */

#endif
