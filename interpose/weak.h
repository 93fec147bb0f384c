/* Weak references to CUDA functions in programs without CUDA. */
#pragma once

/* "if (cudaMalloc)" tests whether the program has CUDA; with gpuspy's wrapper the answer would always be yes. In the
 * objects that the program started with, sets those references to null that would be null without gpuspy. Call it when
 * libgpuspy is loaded, after gs_resolve_load. */
void gs_weak_load(void);
