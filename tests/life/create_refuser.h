/* What create_refuser.c is told to do. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_TEST_CREATE_REFUSER_H
#define HAK_TEST_CREATE_REFUSER_H

#include <pthread.h>

extern int tasks_allowed;
extern _Atomic int short_waits;
struct later {
    void *(*run)(void *);
    void *with;
};
int create_at_once(pthread_t *, const pthread_attr_t *, void *(*run)(void *), void *); /* libc's pthread_create */
extern struct later *later; /* where the next thread is noted that does not begin */

#endif
