/* wrapper_names.h - functions that belong to an allocator, so that a call site is looked for further out.
 *
 * Used by:  analyzer/wrappers.c, which fills frame.is_wrapper and stack.site_frame_id.
 * Pattern:  the function's name without its return type; a name ends before its parameters or a compiler's suffix (xmalloc.part.0). A star
 *           at the end stands for anything.
 * Not here: functions that merely happen to allocate (push_back, getline, PyList_New). They are what a user wants to see.
 */
#ifndef TIDEMARK_SCHEMA_WRAPPER_NAMES_H
#define TIDEMARK_SCHEMA_WRAPPER_NAMES_H

/* clang-format off */

/* The global operators: not even frames (tables.sql, stack) where they are innermost. */
#define TM_OPERATOR_NEW_NAMES(X) X("operator new(*") X("operator new[](*") X("operator new") X("operator new[]")

/* Inline functions around the real ones, as the dynamic loader's rtld-malloc.h has them: not even frames where they are innermost. */
#define TM_INLINED_ALLOCATOR_NAMES(X) \
	X("malloc") X("calloc") X("realloc") X("reallocarray") X("memalign") X("aligned_alloc") X("posix_memalign") X("valloc") X("pvalloc") \
	X("free") X("tidemark_heap_alloc") X("tidemark_heap_free") \
	X("__rtld_malloc") X("__rtld_calloc") X("__rtld_realloc") X("rtld_malloc") X("rtld_calloc") X("rtld_realloc")

#define TM_WRAPPER_NAMES(X) \
	TM_OPERATOR_NEW_NAMES(X) \
	/* libc and what programs call their own checked malloc */ \
	X("malloc") X("calloc") X("realloc") X("reallocarray") \
	X("free") X("posix_memalign") X("aligned_alloc") X("memalign") X("valloc") \
	X("pvalloc") X("__libc_malloc") X("__libc_calloc") X("__libc_realloc") \
	X("__libc_memalign") X("mmap") X("mmap64") X("mremap") X("sbrk") \
	X("__sbrk") X("__GI___sbrk") X("brk") X("__mmap") X("__mmap64") X("__GI___mmap64") \
	X("strdup") X("__strdup") X("__GI___strdup") X("strndup") \
	X("__strndup") X("__GI___strndup") X("strdupa") X("wcsdup") X("asprintf") \
	X("__asprintf") X("vasprintf") X("__vasprintf") X("__vasprintf_internal") X("__asprintf_chk") X("__vasprintf_chk") \
	X("xmalloc") X("xcalloc") X("xrealloc") X("xreallocarray") \
	X("xmallocarray") X("xzalloc") X("xnmalloc") X("xnrealloc") X("x2realloc") \
	X("x2nrealloc") X("xpalloc") X("xmemdup") X("xmemdupz") X("xmemdup0") X("xstrdup") X("xstrndup") X("xasprintf") X("xvasprintf") \
	X("xcharalloc") X("ximalloc") X("xicalloc") X("xirealloc") X("do_xmalloc") X("do_xmallocz") X("xmallocz") X("xmallocz_gently") \
	X("emalloc") X("ecalloc") X("erealloc") X("estrdup") X("my_malloc") X("my_realloc") X("my_strdup") \
	X("safe_malloc") X("safe_calloc") X("safe_realloc") X("rpl_malloc") X("rpl_calloc") \
	X("rpl_realloc") X("je_malloc*") X("je_calloc*") X("je_realloc*") \
	X("mi_malloc*") X("mi_calloc*") X("mi_realloc*") X("tc_malloc*") \
	X("zmalloc*") X("zcalloc*") X("zrealloc*") X("ztrymalloc*") \
	X("ztrycalloc*") X("ztryrealloc*") X("ngx_alloc") X("ngx_calloc") X("ngx_memalign") \
	X("my_large_malloc") X("my_large_virtual_alloc") X("my_multi_malloc*") X("jv_mem_alloc*") X("jv_mem_calloc*") X("jv_mem_realloc*") X("jv_mem_strdup*") \
	X("__gmp_default_allocate") X("__gmp_default_reallocate") X("ZSTD_customMalloc") X("ZSTD_customCalloc") X("CRYPTO_malloc") \
	X("CRYPTO_zalloc") X("CRYPTO_realloc") X("CRYPTO_clear_realloc") X("CRYPTO_strdup") X("CRYPTO_strndup") X("CRYPTO_memdup") \
	X("av_malloc*") X("av_calloc") X("av_realloc*") X("av_strdup") X("av_strndup") X("av_memdup") \
	/* UCX, which Open MPI and MPICH may be built on: what it puts over the functions that map */ \
	X("ucm_*") \
	/* GLib */ \
	X("g_malloc*") X("g_realloc*") X("g_try_malloc*") \
	X("g_try_realloc*") X("g_aligned_alloc*") X("g_slice_alloc*") X("g_slice_copy") \
	X("g_strdup") X("g_strndup") X("g_memdup*") X("standard_malloc") X("standard_calloc") X("standard_realloc") \
	/* SQLite */ \
	X("sqlite3MemMalloc") X("sqlite3MemRealloc") X("sqlite3Malloc") X("sqlite3MallocZero") X("sqlite3_malloc") X("sqlite3_malloc64") \
	X("sqlite3Realloc") X("sqlite3_realloc") X("sqlite3_realloc64") \
	X("mallocWithAlarm") X("sqlite3DbMalloc*") X("sqlite3DbRealloc*") \
	X("sqlite3DbStrDup") X("sqlite3DbStrNDup") X("dbMallocRawFinish") X("dbReallocFinish") X("sqlite3PageMalloc") X("pcache1Alloc") \
	/* Python */ \
	X("PyMem_*") X("_PyMem_*") X("PyObject_Malloc") \
	X("PyObject_Calloc") X("PyObject_Realloc") X("_PyObject_Malloc") X("_PyObject_Calloc") \
	X("_PyObject_Realloc") X("PyObject_Init*") X("_PyObject_New*") \
	X("PyObject_New*") X("_PyObject_GC_*") X("PyObject_GC_*") X("_PyObject_Arena*") \
	X("_PyObject_AllocArena") X("_PyMem_ArenaAlloc") X("PyType_GenericAlloc") \
	X("_PyType_AllocNoTrack") X("gc_alloc") X("pymalloc_*") \
	X("new_arena") X("allocate_from_new_pool") X("_PyBytes_FromSize") \
	X("PyDataMem_*") X("npy_alloc_cache*") X("default_malloc") X("default_calloc") X("default_realloc") \
	/* other languages' runtimes: Fortran, Perl, PHP, R, Guile, SWI-Prolog, OCaml, GHC, Mono, HotSpot, Go, Tcl, Node and V8, Erlang */ \
	X("_gfortrani_xmalloc*") X("_gfortrani_xcalloc") X("_gfortrani_xrealloc*") \
	X("Perl_safesys*") X("Perl_savepv") X("Perl_savepvn") \
	X("__zend_malloc") X("__zend_calloc") X("__zend_realloc") X("zend_strndup") \
	X("_emalloc*") X("_ecalloc") X("_erealloc*") X("_safe_emalloc") X("_estrdup") X("_estrndup") \
	X("R_chk_calloc") X("R_chk_realloc") X("Rstrdup") \
	X("scm_malloc") X("scm_calloc") X("scm_realloc") X("scm_strdup") X("scm_strndup") X("scm_gc_malloc*") \
	X("PL_malloc*") X("PL_realloc*") \
	X("caml_stat_alloc*") X("caml_stat_calloc*") X("caml_stat_resize*") X("caml_stat_strdup*") \
	X("stgMalloc*") X("stgCalloc*") X("stgRealloc*") X("stgStrndup") X("my_mmap") \
	X("monoeg_malloc*") X("monoeg_try_malloc") X("monoeg_realloc") X("monoeg_try_realloc") X("monoeg_g_calloc") \
	X("monoeg_g_strdup") X("monoeg_g_strndup") X("monoeg_g_memdup") \
	X("os::malloc") X("os::realloc") X("os::strdup") X("os::strdup_check_oom") X("AllocateHeap") X("ReallocateHeap") \
	X("NMTPreInitAllocation::do_*") \
	X("ChunkPool::allocate*") X("Arena::grow*") X("Arena::Amalloc*") X("mono_mempool_alloc*") \
	X("TclpAlloc") X("TclpRealloc") X("Tcl_Alloc") X("Tcl_AttemptAlloc") X("Tcl_Realloc") X("Tcl_AttemptRealloc") \
	X("node::NodeArrayBufferAllocator::*") X("v8::internal::AllocAtLeastWithRetry*") X("v8::internal::AllocWithRetry*") X("v8::base::OS::Allocate*") \
	X("erts_sys_alloc") X("erts_sys_realloc") X("erts_sys_aligned_alloc*") \
	X("x_cgo_mmap") X("runtime.callCgoMmap") X("runtime.mmap") X("runtime.sysAlloc*") X("runtime.sysReserve*") X("runtime.sysMap*") \
	/* C++ containers' and allocators' inner functions */ \
	X("std::allocator<*") X("std::__new_allocator<*") \
	X("std::allocator_traits<*") X("std::__allocate_guarded<*") X("std::__detail::_Hashtable_alloc<*") \
	X("__gnu_cxx::new_allocator<*") X("__gnu_cxx::__alloc_traits<*") \
	X("__gnu_cxx::__aligned_buffer<*") X("__gnu_cxx::malloc_allocator<*") \
	X("std::_Vector_base<*") X("std::_Deque_base<*") X("std::_Rb_tree<*>::_M_get_node*") X("std::__cxx11::_List_base<*") \
	X("std::__cxx11::basic_string<*>::_M_create*") X("std::string::_Rep::_S_create*") X("std::string::_Rep::_M_clone*") \
	X("std::__1::allocator<*") \
	X("std::__1::allocator_traits<*") X("std::__1::__libcpp_allocate*") \
	X("std::__1::__allocate_at_least*") X("std::__1::__split_buffer<*") X("std::get_temporary_buffer<*") X("std::pmr::*") \
	X("llvm::safe_malloc*") X("llvm::safe_calloc*") \
	X("llvm::safe_realloc*") X("llvm::allocate_buffer*") X("llvm::BumpPtrAllocatorImpl<*") \
	X("llvm::SmallVectorBase<*>::grow_pod*") X("llvm::SmallVectorBase<*>::mallocForGrow*") X("llvm::MallocAllocator::*") \
	X("QArrayData::allocate*") X("QArrayData::reallocate*") X("QListData::detach*") X("qMalloc*") \
	/* PyTorch */ \
	X("c10::alloc_cpu*") X("c10::DefaultCPUAllocator::*") \
	X("c10::Allocator::*") X("c10::CPUAllocator::*") X("c10::ProfiledCPUMemoryReporter::*") \
	X("c10::cuda::CUDACachingAllocator::*") X("c10::cuda::CUDAMallocAsync*") X("at::detail::empty_*") X("at::native::empty_cuda*") \
	X("at::native::empty_cpu*") X("at::native::empty_strided_cuda*") X("at::native::empty_strided_cpu*") X("at::(anonymous namespace)::create_out*") \
	X("at::(anonymous namespace)::structured_*::set_output_*") X("at::getPinnedMemoryAllocator*") X("at::cuda::CachingHostAllocator*") \
	/* CUDA: functions of its runtime and driver */ \
	X("cudaMalloc*") X("cudaHostAlloc") X("cudaHostRegister") X("cuMemAlloc*") X("cuMemHostAlloc*") X("cuMemHostRegister*") X("cuMemCreate") \
	X("cuMemMap") X("cuMemAddressReserve") \
	/* ... and those in which they load what a kernel needs; asked about it by the recorder they do so a moment sooner */ \
	X("cudaLaunchKernel*") X("cuLaunchKernel*") X("cuFuncGetParamInfo") X("cuKernelGetParamInfo") \
	/* Rust */ \
	X("__rust_alloc*") X("__rust_realloc*") X("__rdl_alloc*") \
	X("__rdl_realloc*") X("__rg_alloc*") X("__rg_realloc*") X("alloc::alloc::*") \
	X("alloc::raw_vec::*") X("<alloc::alloc::Global as *") X("<alloc::alloc::Global>::*") \
	X("<alloc::raw_vec::*") X("std::sys::*::alloc::*") X("<std::alloc::System as *") X("<std::alloc::System>::*") \
	X("alloc::boxed::box_new_uninit*") X("hashbrown::raw::alloc::*") X("hashbrown::alloc::*") \
	X("hashbrown::raw::RawTable*") X("<hashbrown::raw::RawTable*") X("__rustc::*") X("std::sys::alloc::*") \
	/* Ada, OCaml's big arrays, Free Pascal with the C library's memory */ \
	X("__gnat_malloc*") X("__gnat_realloc*") X("caml_ba_alloc*") X("CMEM_$$_CGETMEM*") X("CMEM_$$_CREALLOCMEM*") X("CMEM_$$_CALLOCMEM*") \
	/* the loader's frame between caller and called function, where an auditor (LD_AUDIT) asks to be told when a call ends */ \
	X("_dl_runtime_profile*")

/* Modules, by how their file's name begins, whose functions without a name are an allocator's, too: libraries that nobody has symbols of. */
#define TM_WRAPPER_MODULES(X) X("libcudart.so") X("libcuda.so") X("libcupti.so") X("libucm.so")

/* clang-format on */

#endif
