/* The memory limits of this process's cgroups, and the pressure on memory, from the kernel's text files.
 *
 *  1. /proc/self/cgroup names the process's own cgroup; its files lie in /sys/fs/cgroup, or for version 1 in
 *     /sys/fs/cgroup/memory. In a container the nearest one that can be seen may be an ancestor.
 *  2. All that is read lies in memory of its own (scratch.h), as it is too large for a stack.
 *
 * These open files, which a sandbox may forbid: malloc and free call none of them. Any thread may call them. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

#define CGROUP_NO_NUMBER UINT64_MAX /* there is no limit, or no such file */

/* The limit of the process's own cgroup, or of the nearest one above that can be seen, in six system calls or so. */
uint64_t cgroup_own_limit(void);
/* The smallest limit of the process's own cgroup and its ancestors, of both versions. */
uint64_t cgroup_min_limit(void);
/* Percent of the last ten seconds in which something waited for memory, in the cgroup or else on the machine. */
uint64_t cgroup_pressure_percent(void);

/* For tests: goes before the paths of the kernel's files. */
extern HAK_HIDDEN const char *cgroup_root;
