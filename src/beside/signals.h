/* What the functions that set signal handlers have in common. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/os_crash.h"

#include <signal.h>

typedef void signals_handler(int signal_number);
typedef signals_handler *signals_set(int signal_number, signals_handler *to);

/* What a function of an older kind does, in terms of sigaction. */
signals_handler *signals_set_by_sigaction(int signal_number, signals_handler *to, int flags, bool blocks_itself);
