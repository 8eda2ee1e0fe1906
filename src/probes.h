#ifndef HAK_PROBES_H
#define HAK_PROBES_H
#include "base.h"
HAK_INLINE bool probe_alloc_wanted(void) { return false; }
HAK_INLINE void probe_alloc(const void *p, size_t bytes, uint64_t weight) { (void)p, (void)bytes, (void)weight; }
HAK_INLINE void probe_free(const void *p) { (void)p; }
#endif
